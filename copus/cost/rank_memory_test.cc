#include <gtest/gtest.h>

#include <string>

#include "copus/cost/step.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

// Predicts Llama-3 8B with 4,096 tokens on nodes of eight H100s.
class RunAhead : public testing::Test {
 protected:
  static constexpr double kSeqLen = 4096;

  StepEstimate of(const std::string& text, double layers) {
    options_.run_ahead_layers = layers;
    const ParallelPlan plan = parse_plan_text(text, "--plan").value().plan;
    const std::int64_t nodes = (plan.gpus() + 7) / 8;
    const ClusterSpec cluster = load_cluster(std::to_string(nodes) + "x8xH100-80GB-SXM").value();
    return StepModel(model_, cluster, 4096, 256, options_).predict(plan);
  }
  // Returns how many buffers of one whole activation the host's lead keeps on the first rank.
  double buffers(const std::string& text, double layers) {
    const Bytes more = of(text, layers).first_memory - of(text, 0).first_memory;
    return more / Bytes(2 * kSeqLen * static_cast<double>(model_.hidden));
  }

  ModelSpec model_ = load_model("llama-3-8b").value();  // 32 layers
  CostOptions options_;
};

TEST_F(RunAhead, KeepsTwoWholeActivationsPerLayer) {
  EXPECT_NEAR(buffers("tp=8,sp=1,dp=2,zero=1", 20), 40, 1e-6);
  EXPECT_NEAR(buffers("tp=8,sp=1,dp=2,zero=1,micro_batch=2", 20), 80, 1e-6);
}

TEST_F(RunAhead, EndsWithTheStep) {
  EXPECT_NEAR(buffers("tp=8,sp=1,dp=256,zero=1", 50), 2 * 32, 1e-6);  // one micro-batch
}

TEST_F(RunAhead, NeedsSomethingGathered) {
  EXPECT_EQ(buffers("tp=8,dp=2,zero=1", 20), 0);
  EXPECT_EQ(buffers("dp=16,zero=3", 20), 0);
}

TEST_F(RunAhead, OfAWaitingPipelineIsWhatFillingItLeavesRoomFor) {
  options_.pending_ring_step = microseconds(1e4);  // every layer waits for the host
  const double steady = buffers("tp=8,sp=1,pp=2,dp=2", 20);
  const double deep = buffers("tp=8,sp=1,pp=8,dp=2", 20);
  EXPECT_EQ(steady, 0);  // half of the activations are missing while the pipeline fills
  EXPECT_GT(deep, 20);
  EXPECT_LT(deep, 40);
}

TEST_F(RunAhead, NeverMakesAPlanTooLarge) {
  const char* large = "tp=8,sp=1,micro_batch=16";
  const StepEstimate without = of(large, 0), with = of(large, 200);
  const Bytes memory = load_cluster("1x8xH100-80GB-SXM")->gpu.memory;
  const double budget = memory.v * (1 - options_.memory_margin);
  ASSERT_LT(without.memory.total().v, budget);
  EXPECT_GT(with.memory.total(), without.memory.total());
  EXPECT_LE(with.memory.total().v, budget);
}

TEST_F(RunAhead, IsNoneWhereMessagesStall) {
  options_.hop_congestion = microseconds(1e5);
  EXPECT_EQ(buffers("tp=32,sp=1,pp=8", 20), 0);
  EXPECT_GT(buffers("tp=8,sp=1,pp=8", 20), 0);
}

// `added` returns the number of stalls of 100 ms per pass, in each of `slots` slots of the
// pipeline.
TEST_F(RunAhead, AStallIsPaidToEachNeighbourInEverySlot) {
  const auto added = [&](const char* plan, double slots) {
    options_.hop_congestion = Seconds(0);
    const Seconds before = of(plan, 0).time;
    options_.hop_congestion = microseconds(1e5);
    return (of(plan, 0).time - before) / (microseconds(1e5) * 2.0 * slots);
  };
  EXPECT_NEAR(added("tp=32,sp=1,pp=2", 256 + 1), 1, 0.02);
  EXPECT_NEAR(added("tp=32,sp=1,pp=4", 256 + 3), 2, 0.02);
  EXPECT_LT(added("tp=8,sp=1,pp=4", 256 + 3), 0.1);
}

}  // namespace
}  // namespace copus
