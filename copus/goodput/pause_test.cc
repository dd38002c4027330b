#include "copus/goodput/pause.h"

#include <gtest/gtest.h>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

Configuration at(const char* plan) {
  const Result<PartialPlan> parsed = parse_plan_text(plan, "plan");
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return {parsed->plan, 64};
}

class Pause : public ::testing::Test {
 protected:
  Seconds between(const char* from, const char* to) const {
    return predict_pause(model_, cluster_, {}, at(from), at(to));
  }
  ModelSpec model_ = load_model("llama-3.2-3b").value();
  ClusterSpec cluster_ = load_cluster("1x8xH100-80GB-SXM").value();
};

TEST_F(Pause, NothingMovesNothing) {
  EXPECT_EQ(between("dp=8,micro_batch=1", "dp=8,micro_batch=4,recompute=full"), Seconds());
}

// Each replica holds the whole model, so each GPU already has its stage.
TEST_F(Pause, ToStagesIsFasterThanFromStages) {
  EXPECT_LT(between("dp=8", "dp=2,pp=4"), between("dp=2,pp=4", "dp=8"));
}

TEST_F(Pause, FollowsTheBytesAndTheLink) {
  // From a quarter to all: three quarters of 14 bytes a parameter come over the link.
  const Bytes bytes(0.75 * 14 * static_cast<double>(model_.total_params()));
  const BytesPerSec link = cluster_.gpu.link_bandwidth * cluster_.gpu.link_efficiency;
  const Seconds pause = between("dp=2,pp=4", "dp=8");
  EXPECT_GT(pause, bytes / link);
  EXPECT_LT(pause, 3 * bytes / link + Seconds(0.2));
}

// Layers 0-13 and 14-27 become 0-6, 14-20 and 7-13, 21-27: each rank lacks half of its new layers.
TEST_F(Pause, VirtualStagesMoveHalfOfTheLayers) {
  ASSERT_EQ(model_.layers, 28);
  const Bytes bytes(0.5 * 14 * static_cast<double>(model_.total_params()) / 2);
  const BytesPerSec link = cluster_.gpu.link_bandwidth * cluster_.gpu.link_efficiency;
  const Bytes kept = 2 * bytes;
  const Seconds copied =
      2 * kept / (cluster_.gpu.memory_bandwidth * cluster_.gpu.efficiency.memory);
  EXPECT_NEAR(between("dp=4,pp=2", "dp=4,pp=2,vp=2").v, 0.1 + (bytes / link + copied).v, 1e-9);
}

TEST_F(Pause, ADifferentCutMovesTheLayersThatCrossIt) {
  const Seconds even = between("dp=4,pp=2", "dp=4,pp=2,split=14-14");
  EXPECT_EQ(even, Seconds());
  EXPECT_GT(between("dp=4,pp=2", "dp=4,pp=2,split=15-13"), Seconds(0.1));
  EXPECT_LT(between("dp=4,pp=2", "dp=4,pp=2,split=15-13"),
            between("dp=4,pp=2", "dp=4,pp=2,split=20-8"));
}

// GPU 1 has the second quarter of each matrix and needs its second half.
TEST_F(Pause, OfHalfAsManySlicesAGpuMayHoldNothing) {
  EXPECT_GT(between("dp=2,tp=4", "dp=4,tp=2"), between("dp=2,pp=4", "dp=4,pp=2"));
}

TEST_F(Pause, StateIsShardedOverContextParallelRanksToo) {
  EXPECT_LT(between("dp=2,pp=4", "dp=2,cp=2,pp=2,zero=1"), between("dp=2,pp=4", "dp=4,pp=2"));
  EXPECT_EQ(between("dp=2,pp=4", "dp=2,cp=2,pp=2,zero=1"),
            between("dp=2,pp=4", "dp=4,pp=2,zero=1"));
}

TEST_F(Pause, OfExpertsARankReceivesItsOwnAlone) {
  model_ = load_model("mixtral-8x7b").value();
  EXPECT_LT(between("dp=8", "dp=4,pp=2,ep=4"), between("dp=8,ep=8", "dp=4,pp=2,ep=4"));
  EXPECT_LT(between("dp=8,ep=8", "dp=4,pp=2,ep=4"), between("dp=8,ep=8", "dp=4,pp=2"));
}

TEST_F(Pause, ShardedOptimizerStateComesFromAll) {
  EXPECT_GT(between("dp=8,zero=1", "dp=2,pp=4"), between("dp=8", "dp=2,pp=4"));
}

}  // namespace
}  // namespace copus
