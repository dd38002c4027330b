#include "copus/tuner/usual.h"

#include <gtest/gtest.h>

#include <memory>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

struct UsualJob {
  UsualJob(const char* name, const char* on, std::int64_t seq_len, std::int64_t batch,
           const char* framework = kDefaultFramework)
      : model(load_model(name).value()),
        cluster(load_cluster(on).value()),
        profile(framework_profile(framework).value()) {
    if (cluster.gpu.peak_bf16.v <= 0) profile.options.precision = Precision::kFp16;
    step = std::make_unique<StepModel>(model, cluster, seq_len, batch, profile.options,
                                       profile.limits ? &*profile.limits : nullptr);
  }

  std::optional<RankedPlan> usual(const char* pins = "") const {
    SearchRequest request;
    if (*pins != 0) request.fixed = parse_plan_text(pins, "--fix").value();
    return usual_plan(*step, request, profile.usual);
  }
  Seconds best() const {
    SearchRequest request;
    request.top = 1;
    return search(*step, request).plans.at(0).estimate.time;
  }

  ModelSpec model;
  ClusterSpec cluster;
  FrameworkProfile profile;
  std::unique_ptr<StepModel> step;
};

TEST(UsualRule, OfMegatronKeepsTpInsideTheNodeAndShardsTheOptimizer) {
  struct UsualCase {
    const char* model;
    const char* cluster;
  };
  for (const UsualCase& c : {UsualCase{"llama-3-8b", "2x8xH100-80GB-SXM"},
                             {"llama-3-70b", "8x8xH100-80GB-SXM"},
                             {"gpt3-175b", "64x8xH100-80GB-SXM"},
                             {"llama-3.2-1b", "1x8xH100-80GB-SXM"},
                             {"llama-3-70b", "32x4xA100-80GB-SXM"}}) {
    const UsualJob job(c.model, c.cluster, 2048, 512);
    const std::optional<RankedPlan> usual = job.usual();
    ASSERT_TRUE(usual.has_value()) << c.model;
    const ParallelPlan& p = usual->plan;
    EXPECT_TRUE(job.step->validate(p).has_value()) << short_name(p);
    EXPECT_LE(usual->estimate.memory.total(), job.step->budget()) << short_name(p);
    EXPECT_LE(p.tp, job.cluster.gpus_per_node) << short_name(p);
    EXPECT_EQ(p.zero, p.dp > 1 ? 1 : 0) << short_name(p);
    EXPECT_EQ(p.sp, p.tp > 1) << short_name(p);
    // The search finds a plan at least as fast, because the rule's plan is one of its candidates.
    EXPECT_LE(job.best().v, usual->estimate.time.v * 1.002) << c.model;
  }
}

TEST(UsualRule, SplitsAModelOnlyIfItNeedsTo) {
  EXPECT_EQ(UsualJob("llama-3.2-1b", "1x8xH100-80GB-SXM", 2048, 512).usual().value().plan.tp, 1);
  const ParallelPlan split =
      UsualJob("llama-3-70b", "8x8xH100-80GB-SXM", 2048, 512).usual().value().plan;
  EXPECT_GT(split.tp * split.pp, 1);
  EXPECT_EQ(split.cp, 1);
}

// A domain of 72 GPUs is no reason to split a layer over 32: rules are from nodes of eight.
TEST(UsualRule, IsNoStrawManOnRacksOfManyGpus) {
  for (const char* model : {"llama-3-70b", "llama-3.1-405b"}) {
    const UsualJob job(model, "4x72xGB200", 8192, 576);
    const std::optional<RankedPlan> usual = job.usual();
    ASSERT_TRUE(usual.has_value()) << model;
    EXPECT_LE(usual->plan.tp, 8) << short_name(usual->plan);
    EXPECT_LT(usual->estimate.time / job.best(), 1.3) << short_name(usual->plan);
  }
}

TEST(UsualRule, OfEachFrameworkIsAPlanThatTheFrameworkRuns) {
  for (const std::string& name : framework_names()) {
    const UsualJob job("llama-3-8b", "2x8xH100-80GB-SXM", 4096, 128, name.c_str());
    const std::optional<RankedPlan> usual = job.usual();
    ASSERT_TRUE(usual.has_value()) << name;
    EXPECT_TRUE(job.step->validate(usual->plan).has_value()) << name;
    EXPECT_LT(usual->estimate.time / job.best(), 2.0) << name << " " << short_name(usual->plan);
  }
  const ParallelPlan sharded =
      UsualJob("llama-3-8b", "2x8xH100-80GB-SXM", 4096, 128, "torchtitan").usual().value().plan;
  EXPECT_EQ(sharded.zero, 3);
  EXPECT_EQ(sharded.dp, 16);
  // A batch of fewer sequences than GPUs leaves ranks without work, so that the rule adds tp.
  EXPECT_GT(
      UsualJob("llama-3-8b", "2x8xH100-80GB-SXM", 4096, 8, "torchtitan").usual().value().plan.tp,
      1);
}

TEST(UsualRule, HonoursPinsAndFindsNothingWhereNothingFits) {
  const UsualJob job("llama-3-8b", "2x8xH100-80GB-SXM", 2048, 512);
  const std::optional<RankedPlan> usual = job.usual("tp=4,zero=0,recompute=full");
  ASSERT_TRUE(usual.has_value());
  EXPECT_EQ(usual->plan.tp, 4);
  EXPECT_EQ(usual->plan.zero, 0);
  EXPECT_EQ(usual->plan.recompute, Recompute::kFull);
  // The model is too large for two GPUs, so the rule goes on to pipeline stages and keeps tp=2.
  const std::optional<RankedPlan> staged =
      UsualJob("gpt3-175b", "16x8xA100-80GB-SXM", 2048, 256).usual("tp=2");
  ASSERT_TRUE(staged.has_value());
  EXPECT_EQ(staged->plan.tp, 2);
  EXPECT_GT(staged->plan.pp, 1);
  EXPECT_FALSE(UsualJob("gpt3-175b", "1x8xV100-16GB-SXM", 2048, 64).usual().has_value());

  SearchRequest request;
  request.micro_batches = 8;
  const UsualJob counted("llama-3.2-1b", "1x8xA100-80GB-SXM", 1024, 64);
  EXPECT_EQ(usual_plan(*counted.step, request, {})->plan.micro_batches(64), 8);
}

}  // namespace
}  // namespace copus
