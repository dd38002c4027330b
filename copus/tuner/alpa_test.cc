// The layouts that Alpa (OSDI 2022, arXiv 2201.12023) published for GPT models on AWS p3.16xlarge:
// the solutions in its repository, benchmark/alpa/suite_auto_gpt.py. Eight V100-16GB per node, 25
// Gb/s between nodes, batch 1024, sequences of 1024, fp16, every layer rematerialised. 2.6B on 8
// GPUs is left out: its stages differ in width, which is not one plan.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "copus/interop/hf_config.h"
#include "copus/spec/catalog.h"
#include "copus/tuner/search.h"

namespace copus {
namespace {

struct AlpaCase {
  const char* name;
  int hidden, layers, heads, gpus;
  std::int64_t dp, tp, pp;
  std::int64_t micro_batches = 0, most_stages = 0;  // of Alpa's solution; of its clusters of layers
};

void PrintTo(const AlpaCase& c, std::ostream* out) { *out << c.name << " on " << c.gpus; }

ModelSpec gpt(const AlpaCase& c) {
  const std::string config = fmt::format(
      R"({{"model_type":"gpt2","n_embd":{},"n_layer":{},"n_head":{},"n_positions":1024,"vocab_size":51200,
          "attn_pdrop":0,"resid_pdrop":0,"embd_pdrop":0,"tie_word_embeddings":false}})",
      c.hidden, c.layers, c.heads);
  Result<ModelSpec> model = parse_hf_config(config, c.name);
  EXPECT_TRUE(model.has_value());
  return std::move(model).value();
}

ClusterSpec p3(int gpus) {
  const int per_node = std::min(gpus, 8);
  Result<ClusterSpec> cluster =
      load_cluster(fmt::format("{}x{}xV100-16GB-SXM", gpus / per_node, per_node));
  EXPECT_TRUE(cluster.has_value());
  cluster->network.node_bandwidth = gigabits_per_s(25);
  return std::move(cluster).value();
}

std::string layout(std::int64_t dp, std::int64_t tp, std::int64_t pp) {
  return fmt::format("dp{}.tp{}.pp{}", dp, tp, pp);
}

std::vector<RankedPlan> best_plans(const AlpaCase& c, const ClusterSpec& cluster,
                                   const std::string& pins, int top, CostOptions options = {}) {
  const ModelSpec model = gpt(c);
  options.precision = Precision::kFp16;
  const StepModel step(model, cluster, 1024, 1024, options);
  SearchRequest request;
  request.top = top;
  if (!pins.empty()) {
    Result<PartialPlan> fixed = parse_plan_text(pins, "--fix");
    EXPECT_TRUE(fixed.has_value());
    request.fixed = std::move(fixed).value();
  }
  return search(step, request).plans;
}

std::vector<RankedPlan> best_plans(const AlpaCase& c, const std::string& pins, int top) {
  return best_plans(c, p3(c.gpus), pins, top);
}

std::string best_layout(const AlpaCase& c, const ClusterSpec& cluster, const char* pins) {
  const std::vector<RankedPlan> found = best_plans(c, cluster, pins, 1);
  if (found.empty()) return "nothing fits";
  const ParallelPlan& best = found.front().plan;
  return layout(best.dp, best.tp, best.pp);
}

// Under Alpa's own restrictions.
class AlpaRestricted : public ::testing::TestWithParam<AlpaCase> {};
INSTANTIATE_TEST_SUITE_P(Gpt, AlpaRestricted,
                         ::testing::Values(AlpaCase{"350M", 1024, 24, 16, 1, 1, 1, 1},
                                           AlpaCase{"760M", 1536, 24, 16, 2, 1, 1, 2},
                                           AlpaCase{"1.3B", 2048, 24, 32, 4, 2, 1, 2},
                                           AlpaCase{"6.7B", 4096, 32, 32, 16, 2, 4, 2},
                                           AlpaCase{"39B", 8192, 48, 64, 64, 1, 4, 16}));

constexpr const char* kAlpasRestrictions = "zero=0,recompute=full,cp=1,vp=1";

TEST_P(AlpaRestricted, SearchFindsTheSameLayout) {
  const AlpaCase& c = GetParam();
  EXPECT_EQ(best_layout(c, p3(c.gpus), kAlpasRestrictions), layout(c.dp, c.tp, c.pp));
}

// The V100's utilisation is known by analogy alone, so the layouts must not hinge on it.
TEST_P(AlpaRestricted, LayoutDoesNotHingeOnHowWellProductsRun) {
  const AlpaCase& c = GetParam();
  const auto expect_same = [&](const char* what, double GpuEfficiency::*field, double value) {
    ClusterSpec cluster = p3(c.gpus);
    cluster.gpu.efficiency.*field = value;
    EXPECT_EQ(best_layout(c, cluster, kAlpasRestrictions), layout(c.dp, c.tp, c.pp))
        << what << " " << value;
  };
  for (const double matmul : {0.5, 0.7}) expect_same("matmul", &GpuEfficiency::matmul, matmul);
  for (const double width : {64.0, 600.0}) {
    expect_same("half_n", &GpuEfficiency::matmul_half_n, width);
    expect_same("half_k", &GpuEfficiency::matmul_half_k, width);
  }
  for (const double rows : {16.0, 256.0})
    expect_same("half_m", &GpuEfficiency::matmul_half_m, rows);
  for (const double memory : {0.6, 0.95}) expect_same("memory", &GpuEfficiency::memory, memory);
}

// Alpa's layout for 15B does not fit without sharded optimizer state. An earlier solution of its
// repository (paper_auto_gpt_suite.py) has eight stages of four GPUs, tensor parallel in three and
// as Alpa's solver likes in five.
TEST(Alpa15B, WithoutShardedStateHasTheStagesOfAlpasEarlierSolution) {
  const std::vector<RankedPlan> found =
      best_plans(AlpaCase{"15B", 5120, 48, 40, 32, 2, 4, 4}, kAlpasRestrictions, 100);
  ASSERT_FALSE(found.empty());
  const ParallelPlan& best = found.front().plan;
  EXPECT_EQ(layout(best.dp, best.tp, best.pp), "dp1.tp4.pp8");
  for (const RankedPlan& one : found)
    EXPECT_NE(layout(one.plan.dp, one.plan.tp, one.plan.pp), "dp2.tp4.pp4") << "fits now";
}

// The problem that Alpa had: the number of micro-batches given, at most as many stages as clusters
// of layers, optimizer state sharded over data parallelism (prefer_reduce_scatter), and memory as
// its search counts it. By its logs (benchmark/alpa/grid_16.txt and grid_log/grid_8.txt in its
// repository's history) that is 8 bytes per parameter for weights and gradients where activations
// are small and 6 beside large ones, so 4 and 2 beside the 4 of ours: 3 is taken (which counts with
// dp > 1 alone; the others have room for it). Where stages are cut is free, as Alpa's clusters are
// cut by work and not by number, and so is sp.
constexpr double kAlpasExtraStateBytes = 3;
class AlpaMicroBatches : public ::testing::TestWithParam<AlpaCase> {};
INSTANTIATE_TEST_SUITE_P(Gpt, AlpaMicroBatches,
                         ::testing::Values(AlpaCase{"350M", 1024, 24, 16, 1, 1, 1, 1, 512, 1},
                                           AlpaCase{"760M", 1536, 24, 16, 2, 1, 1, 2, 128, 6},
                                           AlpaCase{"1.3B", 2048, 24, 32, 4, 2, 1, 2, 128, 6},
                                           AlpaCase{"6.7B", 4096, 32, 32, 16, 2, 4, 2, 64, 8},
                                           AlpaCase{"15B", 5120, 48, 40, 32, 2, 4, 4, 128, 16},
                                           AlpaCase{"39B", 8192, 48, 64, 64, 1, 4, 16, 1024, 16}));

TEST_P(AlpaMicroBatches, AlpasLayoutIsTheBestOrNotOnePercentBehind) {
  const AlpaCase& c = GetParam();
  CostOptions options;
  options.extra_state_bytes = kAlpasExtraStateBytes;
  double alpas = 0, best = 0;
  std::string best_name;
  for (std::int64_t dp = 1; dp <= c.gpus; dp *= 2) {
    const std::int64_t micro_batch = 1024 / c.micro_batches / dp;
    if (micro_batch * dp * c.micro_batches != 1024) continue;
    const std::string pins =
        fmt::format("zero=1,recompute=full,cp=1,vp=1,dp={},micro_batch={}", dp, micro_batch);
    for (const RankedPlan& found : best_plans(c, p3(c.gpus), pins, 100, options)) {
      const ParallelPlan& plan = found.plan;
      if (plan.pp > c.most_stages) continue;
      const double time = found.estimate.time.v;
      const bool is_alpas = plan.dp == c.dp && plan.tp == c.tp && plan.pp == c.pp;
      if (is_alpas && (alpas == 0 || time < alpas)) alpas = time;
      if (best == 0 || time < best) {
        best = time;
        best_name = layout(plan.dp, plan.tp, plan.pp);
      }
    }
  }
  ASSERT_GT(alpas, 0) << "Alpa's layout does not fit";
  EXPECT_LT(alpas, 1.01 * best) << best_name;
  const bool is_tie = c.gpus == 2 || c.gpus == 32;  // 0.7% and 0.2%
  if (!is_tie) {
    EXPECT_EQ(best_name, layout(c.dp, c.tp, c.pp));
  }
}

// Nothing pinned: recompute, ZeRO and virtual stages free.
class AlpaFree : public ::testing::TestWithParam<AlpaCase> {};
INSTANTIATE_TEST_SUITE_P(Gpt, AlpaFree,
                         ::testing::Values(AlpaCase{"350M", 1024, 24, 16, 1, 1, 1, 1},
                                           AlpaCase{"760M", 1536, 24, 16, 2, 1, 1, 2},
                                           AlpaCase{"1.3B", 2048, 24, 32, 4, 2, 1, 2},
                                           AlpaCase{"6.7B", 4096, 32, 32, 16, 2, 4, 2},
                                           AlpaCase{"15B", 5120, 48, 40, 32, 2, 4, 4},
                                           AlpaCase{"39B", 8192, 48, 64, 64, 1, 4, 16}));

TEST_P(AlpaFree, LayoutIsTheBestOrTheSecondWithinTwoPercent) {
  const AlpaCase& c = GetParam();
  const std::vector<RankedPlan> found = best_plans(c, "", 2);
  std::size_t at = 0;
  while (at < found.size() && layout(found[at].plan.dp, found[at].plan.tp, found[at].plan.pp) !=
                                  layout(c.dp, c.tp, c.pp))
    ++at;
  ASSERT_LT(at, found.size());
  EXPECT_LT(found[at].estimate.time, found.front().estimate.time * 1.02);
  const bool is_best = c.gpus == 1 || c.gpus == 16 || c.gpus == 32;
  if (is_best) {
    EXPECT_EQ(at, 0u);
  }
}

}  // namespace
}  // namespace copus
