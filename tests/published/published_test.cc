// Compares predictions, made with the catalog alone, with published measurements of step times and
// memory. The bounds are a little above the present errors, so that the tests notice if the model
// gets worse.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "copus/cost/framework.h"
#include "copus/cost/step.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/validate/accuracy.h"

namespace copus {
namespace {

// The runs on V100s have a file of their own, because nothing in the catalog was fitted to them.
const std::array<MeasuredFile, 2>& published() {
  static const std::array<MeasuredFile, 2> files = {
      read_measured(COPUS_MEASURED "/published.csv").value(),
      read_measured(COPUS_MEASURED "/v100.csv").value()};
  return files;
}

std::vector<PricedRun> priced(const std::string& source) {
  std::vector<PricedRun> runs;
  for (const MeasuredFile& file : published()) {
    for (const MeasuredRun& run : file.runs) {
      if (run.source != source && !source.empty()) continue;
      runs.push_back({&run, price(run, framework_profile(run.framework).value())});
    }
  }
  return runs;
}

TEST(PublishedRuns, AreThirtyOrMoreInEachFileAndSayWhereTheyAreFrom) {
  for (const MeasuredFile& file : published()) {
    const CsvTable& table = file.table;
    ASSERT_GE(table.rows.size(), 30u);
    ASSERT_EQ(table.columns.back(), "citation");
    for (const CsvTable::Row& row : table.rows) EXPECT_GT(row.cells.back().size(), 20u);
    for (const MeasuredRun& run : file.runs) EXPECT_EQ(run.problem, "") << run.id;
  }
}

struct Bound {
  const char* source;
  double mean, worst;  // absolute error of step time
};

class PublishedSource : public ::testing::TestWithParam<Bound> {};

TEST_P(PublishedSource, IsPredictedWithinItsBounds) {
  const std::vector<PricedRun> runs = priced(GetParam().source);
  ASSERT_GE(runs.size(), 5u);
  for (const PricedRun& run : runs) {
    std::printf("%-22s %-26s %8.3f s measured, %8.3f s predicted (%+.1f%%)\n", run.run->id.c_str(),
                short_name(run.run->plan).c_str(), run.run->step_time->v, run.price->step_time.v,
                100 * run.signed_error());
    EXPECT_LT(std::abs(run.signed_error()), GetParam().worst) << run.run->id;
  }
  const Accuracy accuracy = accuracy_of(runs, GetParam().source);
  std::printf("%s: mean error %.1f%%\n", GetParam().source, 100 * *accuracy.mape);
  EXPECT_LT(*accuracy.mape, GetParam().mean);
  // These runs worked, so their plans must fit.
  EXPECT_EQ(accuracy.fit.worked_no_fit, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    , PublishedSource,
    ::testing::Values(Bound{"arXiv 2205.05198", 0.05, 0.10}, Bound{"Zero Bubble", 0.06, 0.12},
                      Bound{"torchtitan", 0.08, 0.15}, Bound{"llm-foundry", 0.10, 0.25},
                      Bound{"vTrain", 0.12, 0.25}, Bound{"nanotron playbook", 0.12, 0.25},
                      Bound{"DLPerf", 0.08, 0.36}, Bound{"Alpa", 0.11, 0.20}),
    [](const auto& each) {
      std::string name;
      for (const char c : std::string(each.param.source)) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
      }
      return name;
    });

// Llama-3 70B in FP8 on 64 H100s: 19.69 to 20.21 s in four versions (Megatron-Bridge, performance
// summary, 26.02 to 26.04). Its table does not mention a sharded optimizer, but without one the run
// would not fit. Versions of NVIDIA's software differ: the same work of an 8B model took 10.7 s in
// one of 2024 and 9.1 s in one of 2026. The prediction lies between, so this bound is wide.
TEST(PublishedFp8, TensorParallelTrafficIsHiddenAsMegatronBridgeDoes) {
  const ModelSpec model = load_model("llama-3-70b").value();
  const ClusterSpec cluster = load_cluster("8x8xH100-80GB-SXM").value();
  CostOptions options = framework_profile(kDefaultFramework)->options;
  options.precision = Precision::kFp8;
  ParallelPlan plan;
  plan.tp = 4;
  plan.pp = 8;
  plan.vp = 5;
  plan.schedule = ScheduleKind::kInterleaved;
  plan.dp = 2;
  plan.sp = true;
  const double predicted = StepModel(model, cluster, 8192, 256, options).predict(plan).time.v;
  EXPECT_GT(predicted, 19.69 * 0.95);
  EXPECT_LT(predicted, 20.21 * 1.10);
}

TEST(PublishedRuns, AreWithinBoundsInAllAndInMemory) {
  const Accuracy all = accuracy_of(priced(""), "all");
  EXPECT_LT(*all.mape, 0.08);
  EXPECT_LT(*all.memory_mape, 0.15);
}

}  // namespace
}  // namespace copus
