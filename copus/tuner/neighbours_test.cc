#include "copus/tuner/neighbours.h"

#include <gtest/gtest.h>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

SearchResult best_at(const ModelSpec& model, const ClusterSpec& cluster, std::int64_t batch) {
  SearchRequest request;
  request.top = 1;
  return search(StepModel(model, cluster, 4096, batch, CostOptions()), request);
}

TEST(SmallestCluster, IsTheFirstSizeOnWhichAPlanFits) {
  const ModelSpec model = load_model("llama-3-70b").value();
  ClusterSpec cluster = load_cluster("1x8xA100-40GB-SXM").value();
  const StepModel step(model, cluster, 4096, 64, CostOptions());
  const std::optional<FittingCluster> fitting = smallest_cluster(step, {});
  ASSERT_TRUE(fitting.has_value());
  EXPECT_EQ(fitting->gpus, 8 * fitting->nodes);
  for (std::int64_t nodes = 1; nodes <= fitting->nodes; ++nodes) {
    cluster.nodes = nodes;
    EXPECT_EQ(best_at(model, cluster, 64).plans.empty(), nodes < fitting->nodes) << nodes;
  }
}

TEST(SmallestCluster, KeepsPinsAndMayNotExist) {
  const ModelSpec model = load_model("llama-3-70b").value();
  const ClusterSpec cluster = load_cluster("1x8xA100-40GB-SXM").value();
  const StepModel step(model, cluster, 4096, 64, CostOptions());
  const PartialPlan pins = parse_plan_text("tp=8,pp=1,zero=0", "--fix").value();
  EXPECT_FALSE(smallest_cluster(step, {pins}).has_value());
}

TEST(BetterBatch, DividesTheClusterWhereTheBatchDoesNot) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("1x7xH100-80GB-SXM").value();
  const SearchResult found = best_at(model, cluster, 64);
  const StepModel step(model, cluster, 4096, 64, CostOptions());
  const std::optional<BetterBatch> better =
      better_batch(step, {}, found.plans.at(0), found.searched, 0.02);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->global_batch % 7, 0);
  const double here = found.plans[0].estimate.time.v / 64;
  const double there = best_at(model, cluster, better->global_batch).plans.at(0).estimate.time.v /
                       static_cast<double>(better->global_batch);
  EXPECT_NEAR(better->faster, here / there - 1, 1e-9);
  EXPECT_FALSE(better_batch(step, {}, found.plans.at(0), found.searched, better->faster));
  EXPECT_FALSE(better_batch(step, {}, found.plans.at(0), found.searched, 0.02, 0));
}

TEST(BetterBatch, OfABatchThatSuitsTheClusterIsNone) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  const SearchResult found = best_at(model, cluster, 64);
  const StepModel step(model, cluster, 4096, 64, CostOptions());
  EXPECT_FALSE(better_batch(step, {}, found.plans.at(0), found.searched, 0.02));
}

}  // namespace
}  // namespace copus
