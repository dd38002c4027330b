#include "copus/tuner/pins.h"

#include <gtest/gtest.h>

#include <string>

#include "copus/cost/framework.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

struct PinnedJob {
  ModelSpec model;
  ClusterSpec cluster;
  StepModel step;

  PinnedJob(const char* model_name, const char* cluster_name, std::int64_t batch,
            std::int64_t seq_len = 2048)
      : model(load_model(model_name).value()),
        cluster(load_cluster(cluster_name).value()),
        step(model, cluster, seq_len, batch, CostOptions()) {}

  // Returns the message about the pins. Empty if they are not at fault.
  std::string said_of(const char* pins, std::int64_t micro_batches = 0) const {
    SearchRequest request;
    if (*pins != '\0') request.fixed = parse_plan_text(pins, "--fix").value();
    request.micro_batches = micro_batches;
    EXPECT_FALSE(has_plan(step, request)) << pins;
    const Result<void> checked = check_pins(step, request);
    return checked ? "" : checked.error().message;
  }
};

TEST(Pins, AgainstAFrameworkNameItsLimit) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  const FrameworkProfile fsdp2 = framework_profile("fsdp2").value();
  const StepModel step(model, cluster, 4096, 64, fsdp2.options, &*fsdp2.limits);
  const auto error = [&](const char* pins) {
    SearchRequest request;
    request.fixed = parse_plan_text(pins, "--fix").value();
    const Result<void> checked = check_pins(step, request);
    return checked ? std::string("none") : checked.error().message;
  };
  EXPECT_EQ(error("tp=2"), "--fix: tp: got 2; want 1, because fsdp2 runs no tensor parallelism");
  EXPECT_EQ(error("zero=1"), "--fix: zero: got 1; want 2 or 3, because of the limits of fsdp2");
  EXPECT_EQ(error("cp=2,micro_batch=1"),
            "--fix: cp: got 2; want 1, because fsdp2 runs no context parallelism");
}

TEST(HasPlan, IsWhetherASearchFindsAny) {
  const PinnedJob job("mixtral-8x7b", "2x8xH100-80GB-SXM", 96);
  int some = 0, none = 0;
  for (const char* pins :
       {"tp=1", "tp=3", "pp=4,zero=2", "ep=8,tp=2,sp=0", "ep=8,dp=4", "vp=3,pp=2", "vp=40",
        "split=16-16", "split=16-15", "dp=16,mb=6", "dp=16,mb=5", "schedule=gpipe,vp=2", "cp=16",
        "pp=2,schedule=interleaved"}) {
    SearchRequest request;
    request.fixed = parse_plan_text(pins, "--fix").value();
    const bool found = search(job.step, request).searched > 0;
    EXPECT_EQ(has_plan(job.step, request), found) << pins;
    ++(found ? some : none);
  }
  EXPECT_GT(some, 3);
  EXPECT_GT(none, 3);
}

TEST(CheckPins, NamesTheOnePinThatIsAtFaultWhateverElseIsPinned) {
  const PinnedJob job("mixtral-8x7b", "2x8xH100-80GB-SXM", 96);
  for (const char* pins : {"ep=3", "tp=2,pp=2,ep=3", "ep=3,zero=1,dp=4,mb=2"}) {
    EXPECT_EQ(job.said_of(pins),
              "--fix: ep: got 3, which does not divide 8 experts; want a divisor (1, 2, 4, 8)");
  }
  EXPECT_EQ(job.said_of("tp=2,dp=3"),
            "--fix: dp: got 3; want 2, 4 or 1, because it does not divide the cluster's 16 GPUs");
  EXPECT_EQ(
      job.said_of("mb=7,zero=1"),
      "--fix: micro_batch: got 7; want 6, 8 or 4, because it does not divide the batch of 96");
  EXPECT_EQ(job.said_of("vp=40"), "--fix: vp: got 40; want 17, 16 or 15");
}

TEST(CheckPins, NamesTheFewestPinsThatCannotBeTogether) {
  const PinnedJob job("deepseek-v3", "256x8xH100-80GB-SXM", 1024, 4096);
  // Each of these pins is possible, and so is each pair. All three are not, because 2048 GPUs /
  // 16 leave 128 ranks for a stage.
  EXPECT_EQ(job.said_of("tp=2,pp=16,ep=256"), "--fix: ep: got 256 with pp=16; want 128, 64 or 32");
  EXPECT_EQ(job.said_of("tp=2,pp=16,ep=256,zero=1,sp=1"),
            "--fix: ep: got 256 with pp=16; want 128, 64 or 32");
  EXPECT_EQ(job.said_of("pp=64,zero=1"), "--fix: pp: got 64; want 32, 16 or 8");
  EXPECT_EQ(
      job.said_of("tp=2,ep=64,sp=0"),
      "--fix: sp: got 0 with tp=2 and ep=64; want 1, because experts exchange split sequences");
  EXPECT_EQ(job.said_of("zero=3,pp=4,tp=8"),
            "--fix: zero: got 3 with pp=4; want 0 or 1, because gradients would be reduced after "
            "every micro-batch");
  EXPECT_EQ(job.said_of("tp=8,dp=512"),
            "--fix: dp: got 512 with tp=8; want 256, 128 or 64, because tp*dp = 4096 does not "
            "divide the cluster's 2048 GPUs");
}

TEST(CheckPins, AsksForValuesThatLeaveAPlanWithTheOtherPins) {
  const PinnedJob job("llama-3-8b", "2x8xH100-80GB-SXM", 48);
  EXPECT_EQ(job.said_of("dp=16,mb=2"),
            "--fix: micro_batch: got 2 with dp=16; want 1 or 3, because dp*micro_batch = 32 does "
            "not divide the batch of 48");
  EXPECT_EQ(job.said_of("pp=2,split=16-15"), "--fix: stage_layers: got 31 layers in all; want 32");
  EXPECT_EQ(job.said_of("pp=2,vp=1,split=8x4"),
            "--fix: stage_layers: got 4 entries; want pp*vp = 2*1 = 2");
}

// Where tp is free, the values come from all GPUs: etp=2 runs with tp=2.
TEST(CheckPins, AsksForEveryWayToCutExpertsThatTheOtherPinsAllow) {
  const PinnedJob job("mixtral-8x7b", "2x8xH100-80GB-SXM", 64);
  for (const char* possible : {"ep=8,etp=2", "ep=8,etp=1"}) {
    SearchRequest request;
    request.fixed = parse_plan_text(possible, "--fix").value();
    EXPECT_TRUE(has_plan(job.step, request)) << possible;
  }
  EXPECT_EQ(job.said_of("ep=8,etp=8"), "--fix: etp: got 8 with ep=8; want 2 or 1");
}

TEST(CheckPins, TellsToChangeThePinThatCanBeRight) {
  // dp = 7 does not divide a batch of 5, and no cp splits the sequences.
  const PinnedJob job("llama-3-8b", "1x7xH100-80GB-SXM", 5);
  EXPECT_EQ(job.said_of("tp=1,pp=1,cp=1"), "--fix: pp: got 1; want 7");
}

TEST(CheckPins, AreNotAtFaultWhereNothingIsPossibleWithoutThem) {
  const PinnedJob job("tiny", "1x7xH100-80GB-SXM", 5, 64);  // seven GPUs for four layers
  EXPECT_EQ(job.said_of(""), "");
  EXPECT_EQ(job.said_of("tp=1,pp=1"), "");
  EXPECT_EQ(job.said_of("tp=3"), "");
}

TEST(CheckPins, TellsMicroBatchesThatThePinsDoNotAllow) {
  const PinnedJob job("llama-3-8b", "1x8xH100-80GB-SXM", 64);
  EXPECT_EQ(job.said_of("", 7), "--micro-batches: got 7; want a divisor of the batch of 64");
  EXPECT_EQ(
      job.said_of("dp=8", 64),
      "--micro-batches: got 64 with dp*micro_batch = 8 or a multiple by --fix; want a divisor "
      "of 8");
  EXPECT_EQ(job.said_of("tp=8,pp=1,mb=1", 32),
            "--micro-batches: got 32 with micro_batch=1 by --fix, which needs dp=2; want a dp that "
            "divides 1 GPU");
}

}  // namespace
}  // namespace copus
