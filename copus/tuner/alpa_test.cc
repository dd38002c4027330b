// Compares the search with the layouts that Alpa (OSDI 2022, arXiv 2201.12023) published for GPT
// models on AWS p3.16xlarge: the solutions in its repository, benchmark/alpa/suite_auto_gpt.py. The
// nodes have eight V100-16GB each and 25 Gb/s between them. The batch is 1024 sequences of 1024
// tokens, in fp16, with every layer rematerialised. The solution for 2.6B on 8 GPUs has stages of
// different width, which a single plan cannot express.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "copus/cost/framework.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/tuner/search.h"

namespace copus {
namespace {

struct AlpaCase {
  const char* name;
  int hidden, layers, heads, gpus;
  std::string layout;          // of Alpa's solution
  std::int64_t micro_batches;  // of Alpa's solution
};

const AlpaCase k350M{"350M", 1024, 24, 16, 1, "dp1.tp1.pp1", 512};
const AlpaCase k760M{"760M", 1536, 24, 16, 2, "dp1.tp1.pp2", 128};
const AlpaCase k1_3B{"1.3B", 2048, 24, 32, 4, "dp2.tp1.pp2", 128};
const AlpaCase k2_6B{"2.6B", 2560, 32, 32, 8, "", 128};
const AlpaCase k6_7B{"6.7B", 4096, 32, 32, 16, "dp2.tp4.pp2", 64};
const AlpaCase k15B{"15B", 5120, 48, 40, 32, "dp2.tp4.pp4", 128};
const AlpaCase k39B{"39B", 8192, 48, 64, 64, "dp1.tp4.pp16", 1024};
const auto kAll = ::testing::Values(k350M, k760M, k1_3B, k6_7B, k15B, k39B);

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

std::string layout_of(const RankedPlan& one) {
  return fmt::format("dp{}.tp{}.pp{}", one.plan.dp, one.plan.tp, one.plan.pp);
}

// Returns the plans that a search finds, best first.
std::vector<RankedPlan> find(const AlpaCase& c, const ClusterSpec& cluster, const char* pins,
                             CostOptions options = {}, std::int64_t micro_batches = 0) {
  const ModelSpec model = gpt(c);
  options.precision = Precision::kFp16;
  const StepModel step(model, cluster, 1024, 1024, options);
  SearchRequest request;
  request.top = 100;
  request.micro_batches = micro_batches;
  if (*pins != '\0') request.fixed = parse_plan_text(pins, "--fix").value();
  return search(step, request).plans;
}

std::string best_layout(const std::vector<RankedPlan>& found) {
  return found.empty() ? "nothing fits" : layout_of(found.front());
}

// Searches only plans that rematerialise every layer and do not shard the optimizer state.
class AlpaRestricted : public ::testing::TestWithParam<AlpaCase> {};
INSTANTIATE_TEST_SUITE_P(Gpt, AlpaRestricted, ::testing::Values(k350M, k760M, k1_3B, k6_7B, k39B));
constexpr const char* kUnsharded = "zero=0,recompute=full,cp=1,vp=1";

TEST_P(AlpaRestricted, SearchFindsTheSameLayout) {
  const AlpaCase& c = GetParam();
  EXPECT_EQ(best_layout(find(c, p3(c.gpus), kUnsharded)), c.layout);
}

// The V100's efficiencies are only known by analogy with other GPUs, so the layouts must not hinge
// on them.
TEST_P(AlpaRestricted, LayoutDoesNotHingeOnHowWellProductsRun) {
  const AlpaCase& c = GetParam();
  const auto expect_same = [&](const char* what, double GpuEfficiency::*field, double value) {
    ClusterSpec cluster = p3(c.gpus);
    cluster.gpu.efficiency.*field = value;
    EXPECT_EQ(best_layout(find(c, cluster, kUnsharded)), c.layout) << what << " " << value;
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

// Alpa's layout for 15B does not fit without sharded optimizer state. An earlier solution in its
// repository (paper_auto_gpt_suite.py) has eight stages of four GPUs. Three of them are tensor
// parallel; in the other five, Alpa's solver chose the parallelism.
TEST(Alpa15B, WithoutShardedStateHasTheStagesOfAlpasEarlierSolution) {
  const std::vector<RankedPlan> found = find(k15B, p3(k15B.gpus), kUnsharded);
  EXPECT_EQ(best_layout(found), "dp1.tp4.pp8");
  for (const RankedPlan& one : found) EXPECT_NE(layout_of(one), k15B.layout) << "fits now";
}

// Solves the problem that Alpa solved: the number of micro-batches is given, every layer is
// rematerialised, and the optimizer state is sharded over data parallelism (prefer_reduce_scatter).
// Memory is counted as Alpa's search counts it. By its logs (benchmark/alpa/grid_16.txt and
// grid_log/grid_8.txt in its repository's history), weights and gradients take 6 to 8 bytes per
// parameter, which is 2 to 4 extra bytes beside Copus's 4. The extra bytes count only with dp > 1;
// the other layouts have room for them.
std::vector<RankedPlan> solve(const AlpaCase& c, CostOptions options, double extra_state_bytes,
                              std::int64_t micro_batches) {
  options.extra_state_bytes = extra_state_bytes;
  return find(c, p3(c.gpus), "zero=1,recompute=full,cp=1,vp=1", options, micro_batches);
}

// Returns options for costs as Alpa counts them. Its stages take about the same time, as its logged
// costs show (grid_16.txt: 0.970, 1.022, 0.946 and 0.926 for four stages of 6.7B). Messages between
// stages cost nothing, because its search leaves them out (its paper lists this as a limitation).
CostOptions as_alpa_counts() {
  CostOptions options = framework_profile("alpa").value().options;
  options.pp_overlap = 1;
  return options;
}

class AlpaProblem : public ::testing::TestWithParam<AlpaCase> {};
INSTANTIATE_TEST_SUITE_P(Gpt, AlpaProblem, kAll);

TEST_P(AlpaProblem, SearchFindsAlpasLayout) {
  const AlpaCase& c = GetParam();
  for (const double extra_state_bytes : {1.0, 2.0, 3.0, 4.0}) {
    const std::vector<RankedPlan> found =
        solve(c, as_alpa_counts(), extra_state_bytes, c.micro_batches);
    EXPECT_EQ(best_layout(found), c.layout) << extra_state_bytes;
  }
}

// Only the layout of 760M depends on where stages are cut. The two layouts differ by 0.7%.
TEST_P(AlpaProblem, WithWholeLayersAllBut760MAreFound) {
  const AlpaCase& c = GetParam();
  CostOptions options = as_alpa_counts();
  options.stage_cut = StageCut::kLayers;
  for (const double extra_state_bytes : {3.0, 4.0}) {
    const std::vector<RankedPlan> found = solve(c, options, extra_state_bytes, c.micro_batches);
    EXPECT_EQ(best_layout(found), c.gpus == 2 ? "dp2.tp1.pp1" : c.layout) << extra_state_bytes;
  }
}

// Searches the grid that Alpa searched (grid_search_suite): `counts` are the numbers of
// micro-batches, and `clusters` is the number of clusters of operators, which limits the number of
// stages. Returns the plans best first.
std::vector<RankedPlan> solve_grid(const AlpaCase& c, const std::vector<std::int64_t>& counts,
                                   std::int64_t clusters) {
  std::vector<RankedPlan> all;
  for (const std::int64_t micro_batches : counts) {
    for (const RankedPlan& one : solve(c, as_alpa_counts(), 4, micro_batches)) {
      if (one.plan.pp <= clusters) all.push_back(one);
    }
  }
  std::sort(all.begin(), all.end(), [](const RankedPlan& a, const RankedPlan& b) {
    return a.estimate.time < b.estimate.time;
  });
  return all;
}

void expect(const RankedPlan& found, const std::string& layout, std::int64_t micro_batches) {
  EXPECT_EQ(layout_of(found), layout);
  EXPECT_EQ(found.plan.micro_batches(1024), micro_batches);
}

TEST(AlpaGrid, SearchFindsLayoutAndMicroBatchesOfFourSolutions) {
  for (const auto& [c, counts, clusters] :
       {std::tuple<AlpaCase, std::vector<std::int64_t>, std::int64_t>{
            k760M, {32, 64, 128, 256}, 12},
        {k1_3B, {32, 64, 128}, 12},
        {k6_7B, {32, 64, 128, 256}, 8},
        {k15B, {64, 128, 256, 512}, 16}}) {
    SCOPED_TRACE(c.name);
    const std::vector<RankedPlan> found = solve_grid(c, counts, clusters);
    ASSERT_FALSE(found.empty());
    expect(found[0], c.layout, c.micro_batches);
  }
}

// Alpa's solution for 39B has sixteen clusters, but its grid has eight. With eight clusters its
// repository runs eight stages of eight GPUs and 256 micro-batches (paper_auto_gpt_suite.py:
// test_auto_gpt_suite).
TEST(AlpaGrid, SearchFindsTheEightStagesOf39BThatAlpaRuns) {
  const std::vector<RankedPlan> found = solve_grid(k39B, {128, 256, 512, 1024}, 8);
  ASSERT_FALSE(found.empty());
  expect(found[0], "dp1.tp8.pp8", 256);
}

// Alpa's earlier solution for 15B has eight stages of four GPUs and 256 micro-batches
// (paper_auto_gpt_suite.py: result_auto_gpt_suite).
TEST(AlpaGrid, SecondOf15BIsAlpasEarlierSolution) {
  const std::vector<RankedPlan> found = solve_grid(k15B, {64, 128, 256, 512}, 16);
  ASSERT_GT(found.size(), 1u);
  expect(found[1], "dp1.tp4.pp8", 256);
}

// Here stages are whole layers, and messages cost time. Alpa's layout is still the best for four
// models, and a near-tie for two.
TEST_P(AlpaProblem, AsMegatronRunsItAlpasLayoutIsTheBestOrNotOnePercentBehind) {
  const AlpaCase& c = GetParam();
  const std::vector<RankedPlan> found = solve(c, {}, 3, c.micro_batches);
  const auto alpas = std::find_if(found.begin(), found.end(), [&](const RankedPlan& one) {
    return layout_of(one) == c.layout;
  });
  ASSERT_NE(alpas, found.end()) << "Alpa's layout does not fit";
  EXPECT_LT(alpas->estimate.time, found.front().estimate.time * 1.01);
  const bool is_tie = c.gpus == 2 || c.gpus == 32;  // 0.7% and 0.2%
  EXPECT_EQ(best_layout(found) != c.layout, is_tie) << best_layout(found);
}

// Alpa's solution has three stages of 2, 2 and 4 GPUs, each data parallel inside. It is a mixture
// of the two best plans of the search.
TEST(Alpa2_6B, TheBestTwoAreThoseThatAlpasIsMixedOf) {
  const std::vector<RankedPlan> found = solve(k2_6B, as_alpa_counts(), 3, k2_6B.micro_batches);
  ASSERT_GT(found.size(), 1u);
  EXPECT_EQ(layout_of(found[0]), "dp4.tp1.pp2");
  EXPECT_EQ(layout_of(found[1]), "dp2.tp1.pp4");
  EXPECT_LT(found[1].estimate.time, found[0].estimate.time * 1.01);
}

// Pins nothing: the search chooses recompute, ZeRO and virtual stages, which Megatron-LM has too.
class AlpaFree : public ::testing::TestWithParam<AlpaCase> {};
INSTANTIATE_TEST_SUITE_P(Gpt, AlpaFree, kAll);

TEST_P(AlpaFree, LayoutIsTheBestOrTheSecondWithinTwoPercent) {
  const AlpaCase& c = GetParam();
  const std::vector<RankedPlan> found = find(c, p3(c.gpus), "");
  ASSERT_FALSE(found.empty());
  const bool is_best = c.gpus == 1 || c.gpus == 16 || c.gpus == 32;
  const std::size_t at = is_best ? 0 : 1;
  ASSERT_LT(at, found.size());
  EXPECT_EQ(layout_of(found[at]), c.layout);
  EXPECT_LT(found[at].estimate.time, found.front().estimate.time * 1.02);
}

}  // namespace
}  // namespace copus
