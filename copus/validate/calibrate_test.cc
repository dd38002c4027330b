// Tests calibration on rows that the cost model computed with known parameters, which the
// calibration does not see.
#include "copus/validate/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "copus/spec/catalog.h"

namespace copus {
namespace {

ModelSpec shape(std::int64_t layers, std::int64_t hidden) {
  ModelSpec model;
  model.name = std::to_string(hidden);
  model.layers = layers;
  model.hidden = hidden;
  model.ffn = 3 * hidden;
  model.heads = model.kv_heads = hidden / 128;
  model.head_dim = 128;
  model.vocab = 50'000;
  model.max_positions = 2048;
  return model;
}

const FrameworkProfile& megatron() {
  static const FrameworkProfile profile = framework_profile("megatron").value();
  return profile;
}

// Returns runs of several shapes and layouts. Each has the time and memory that the cost model
// predicts after `truth` has changed its cluster and profile, with a relative error of `noise`.
std::vector<MeasuredRun> made_runs(
    const std::function<void(ClusterSpec&, FrameworkProfile&)>& truth, double noise,
    std::size_t count) {
  std::vector<MeasuredRun> runs;
  std::mt19937_64 random(7);
  std::normal_distribution<double> error(0, noise);
  for (const std::int64_t hidden : {1024, 2048, 4096}) {
    for (const std::int64_t nodes : {1, 2, 4}) {
      for (const std::int64_t tp : {1, 2, 4}) {
        for (const std::int64_t pp : {1, 2}) {
          for (const std::int64_t micro_batch : {1, 4}) {
            MeasuredRun run;
            run.model = shape(16, hidden);
            run.cluster = cluster_of(catalog_gpu("A100-80GB-SXM").value(), nodes, 8).value();
            run.source = "made";
            run.framework = "megatron";
            run.plan.tp = tp;
            run.plan.pp = pp;
            run.plan.dp = run.cluster.gpus() / tp / pp;
            run.plan.micro_batch = micro_batch;
            run.seq_len = 2048;
            run.global_batch = 256;
            ClusterSpec cluster = run.cluster;
            FrameworkProfile profile = megatron();
            truth(cluster, profile);
            const RunPrice price = copus::price(run, cluster, profile).value();
            run.step_time = price.step_time * std::exp(error(random));
            run.peak_memory = price.peak_memory * std::exp(error(random));
            runs.push_back(std::move(run));
          }
        }
      }
    }
  }
  std::shuffle(runs.begin(), runs.end(), random);
  runs.resize(std::min(count, runs.size()));
  return runs;
}

std::vector<CalibrationRow> rows_of(const std::vector<MeasuredRun>& runs) {
  std::vector<const MeasuredRun*> pointers;
  pointers.reserve(runs.size());
  for (const MeasuredRun& run : runs) pointers.push_back(&run);
  const std::vector<const FrameworkProfile*> profiles(runs.size(), &megatron());
  return balanced_rows(pointers, profiles);
}

const FittedParameter& find(const Calibration& calibration, const std::string& name) {
  const auto found = std::find_if(calibration.parameters.begin(), calibration.parameters.end(),
                                  [&](const FittedParameter& p) { return p.name == name; });
  EXPECT_NE(found, calibration.parameters.end()) << name;
  return *found;
}

double mean_error(const std::vector<MeasuredRun>& runs,
                  const std::vector<std::optional<RunPrice>>& prices) {
  double sum = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    sum += std::abs(prices[i]->step_time / *runs[i].step_time - 1);
  }
  return sum / static_cast<double>(runs.size());
}

std::vector<std::optional<RunPrice>> prices(const std::vector<MeasuredRun>& runs,
                                            const Calibration& calibration) {
  std::vector<std::optional<RunPrice>> all;
  all.reserve(runs.size());
  for (const MeasuredRun& run : runs) all.push_back(price(run, megatron(), calibration));
  return all;
}

void slower(ClusterSpec& cluster, FrameworkProfile& profile) {
  cluster.gpu.efficiency.matmul *= 0.75;
  cluster.network.efficiency = 0.3;
  profile.options.elementwise = 2.5;
  profile.options.host_layer_forward = microseconds(1500);
  profile.options.activation_scale = 1.6;
}

class CalibrationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_calibrate()) GTEST_SKIP() << "built without a solver";
  }
};

TEST_F(CalibrationTest, FindsTheParametersThatMadeTheRows) {
  const std::vector<MeasuredRun> runs = made_runs(slower, 0.02, 1000);
  const Calibration fitted = calibrate(rows_of(runs), {});
  const Calibration none;
  EXPECT_GT(mean_error(runs, prices(runs, none)), 0.2);
  EXPECT_LT(mean_error(runs, prices(runs, fitted)), 0.03);
  // The true value must lie in the interval of the fit, widened by 5% because some intervals are
  // very narrow.
  const auto near = [&](const std::string& name, double truth) {
    const FittedParameter& p = find(fitted, name);
    EXPECT_GT(truth, p.low * 0.95) << name;
    EXPECT_LT(truth, p.high * 1.05) << name;
  };
  EXPECT_TRUE(find(fitted, "matmul").informed);
  EXPECT_TRUE(find(fitted, "host_layer_forward_us").informed);
  EXPECT_TRUE(find(fitted, "activation_scale").informed);
  near("matmul", 0.75 * catalog_gpu("A100-80GB-SXM")->efficiency.matmul);
  near("host_layer_forward_us", 1500);
  // The time of element-wise work is its traffic over the memory rate, so the rows determine only
  // the ratio of the two.
  const double rate = catalog_gpu("A100-80GB-SXM")->efficiency.memory;
  EXPECT_NEAR(find(fitted, "elementwise").value / find(fitted, "memory").value / (2.5 / rate), 1,
              0.25);
  near("activation_scale", 1.6);
}

TEST_F(CalibrationTest, AnOptionAtItsDefaultIsSoughtFromTheDefault) {
  // megatron's logits_bytes is 0, which stands for 6 in half precision. These rows need 12.
  ASSERT_EQ(megatron().options.logits_bytes, 0);
  const std::vector<MeasuredRun> runs =
      made_runs([](ClusterSpec&, FrameworkProfile& profile) { profile.options.logits_bytes = 12; },
                0.01, 1000);
  const Calibration fitted = calibrate(rows_of(runs), {});
  EXPECT_TRUE(fitted.intervals_known);
  const FittedParameter logits = find(fitted, "logits_bytes");
  EXPECT_EQ(logits.start, 6);
  const auto in_fp32 = [&](const MeasuredRun& run) {
    MeasuredRun copy = run;
    copy.precision = Precision::kFp32;
    return copy;
  };
  const std::vector<MeasuredRun> fp32 = {in_fp32(runs[0]), in_fp32(runs[1])};
  EXPECT_EQ(find(calibrate(rows_of(fp32), {}), "logits_bytes").start, 8);
  EXPECT_TRUE(logits.informed);
  EXPECT_NEAR(logits.value, 12, 1.5);
  for (const FittedParameter& p : fitted.parameters) EXPECT_LT(p.low, p.high) << p.key << p.name;
}

TEST_F(CalibrationTest, IntervalsThatCannotBeToldAreAsWideAsBeliefs) {
  const std::vector<MeasuredRun> runs = made_runs(slower, 0.02, 40);
  CalibrationOptions options;
  options.row_error = 1e-15;  // trusts rows so much that the beliefs are lost in rounding
  const Calibration fitted = calibrate(rows_of(runs), options);
  EXPECT_FALSE(fitted.intervals_known);
  for (const FittedParameter& p : fitted.parameters) {
    EXPECT_FALSE(p.informed) << p.name;
    EXPECT_LT(p.low, p.high) << p.name;
  }
}

TEST_F(CalibrationTest, OfTwentyRowsHoldsOnRowsNeverSeen) {
  const std::vector<MeasuredRun> all = made_runs(slower, 0.02, 1000);
  const std::vector<MeasuredRun> few(all.begin(), all.begin() + 20);
  const std::vector<MeasuredRun> unseen(all.begin() + 20, all.end());
  const Calibration fitted = calibrate(rows_of(few), {});
  EXPECT_LT(mean_error(unseen, prices(unseen, fitted)), 0.08);
}

TEST_F(CalibrationTest, IsNotMovedByAFewWildReadings) {
  std::vector<MeasuredRun> runs = made_runs(slower, 0.02, 1000);
  const std::vector<MeasuredRun> right = runs;
  for (std::size_t i = 0; i < runs.size(); i += 10) runs[i].step_time = 6 * *runs[i].step_time;
  const Calibration fitted = calibrate(rows_of(runs), {});
  EXPECT_LT(mean_error(right, prices(right, fitted)), 0.05);
}

TEST_F(CalibrationTest, KeepsWhatItIsToldTo) {
  const std::vector<MeasuredRun> runs = made_runs(slower, 0.02, 40);
  CalibrationOptions options;
  options.keep = {"A100"};
  const Calibration fitted = calibrate(rows_of(runs), options);
  for (const FittedParameter& p : fitted.parameters) EXPECT_NE(p.key, "A100") << p.name;
  ClusterSpec cluster = runs[0].cluster;
  FrameworkProfile profile = megatron();
  fitted.apply(cluster, profile);
  EXPECT_EQ(cluster.gpu.efficiency.matmul, runs[0].cluster.gpu.efficiency.matmul);
  EXPECT_NE(profile.options.elementwise, megatron().options.elementwise);
}

TEST_F(CalibrationTest, WithoutRowsChangesNothing) {
  const Calibration fitted = calibrate({}, {});
  EXPECT_TRUE(fitted.parameters.empty());
}

TEST_F(CalibrationTest, PricesAFoldWithoutItsOwnRows) {
  // Two of three models are measured 1.2 times too slow. Priced with parameters that were fitted
  // only to the third model, which are the catalog's, their predictions are too short by that
  // factor. Parameters fitted to their own rows would make the predictions right.
  std::vector<MeasuredRun> runs = made_runs([](ClusterSpec&, FrameworkProfile&) {}, 0.0, 1000);
  std::vector<std::string> folds;
  for (MeasuredRun& run : runs) {
    const bool is_odd = run.model.hidden != 1024;
    if (is_odd) run.step_time = 1.2 * *run.step_time;
    folds.push_back(is_odd ? "odd" : "even");
  }
  std::size_t reported = 0;
  const auto out = cross_validate(rows_of(runs), folds, {},
                                  [&](std::size_t done, std::size_t) { reported = done; });
  EXPECT_EQ(reported, 2u);
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (folds[i] != "odd") continue;
    sum += out[i]->step_time / *runs[i].step_time;
    ++count;
  }
  EXPECT_NEAR(sum / count, 1 / 1.2, 0.04);
}

TEST_F(CalibrationTest, FromScratchOwesTheCatalogNothing) {
  // A GPU without rows in the other folds is priced with the values that are expected for any GPU,
  // not with the catalog's values.
  std::vector<MeasuredRun> runs = made_runs([](ClusterSpec&, FrameworkProfile&) {}, 0.0, 40);
  const std::vector<CalibrationRow> none;
  CalibrationOptions options;
  options.from_scratch = true;
  const Calibration fitted = calibrate(none, options);
  for (const double catalog : {0.3, 0.9}) {
    ClusterSpec cluster = runs[0].cluster;
    cluster.gpu.efficiency.matmul = catalog;
    FrameworkProfile profile = megatron();
    profile.options.elementwise = 7;
    fitted.apply(cluster, profile);
    EXPECT_DOUBLE_EQ(cluster.gpu.efficiency.matmul, 0.7);
    EXPECT_DOUBLE_EQ(profile.options.elementwise, 1.5);
  }
  options.keep = {"megatron"};
  ClusterSpec cluster = runs[0].cluster;
  FrameworkProfile profile = megatron();
  calibrate(none, options).apply(cluster, profile);
  EXPECT_DOUBLE_EQ(profile.options.elementwise, megatron().options.elementwise);
}

TEST(Parameters, HaveRangesThatHoldTheirPriorsAndTheCatalog) {
  for (const Parameter& p : calibration_parameters()) {
    if (p.prior != Parameter::kNoPrior) {
      EXPECT_LE(p.low, p.prior) << p.name;
      EXPECT_LE(p.prior, p.high) << p.name;
    }
    EXPECT_GT(p.spread, 0) << p.name;
    for (const std::string& framework : framework_names()) {
      ClusterSpec cluster = cluster_of(catalog_gpu("H100-80GB-SXM").value(), 2, 8).value();
      FrameworkProfile profile = framework_profile(framework).value();
      const double value = p.field(cluster, profile.options) / p.scale;
      if (p.when_zero && value == 0) continue;
      EXPECT_LE(p.low, value * (1 + 1e-9)) << p.name << ' ' << framework;
      EXPECT_LE(value, p.high * (1 + 1e-9)) << p.name << ' ' << framework;
    }
  }
}

TEST(Parameters, OfCardsThatDifferInMemoryAreOne) {
  EXPECT_EQ(gpu_family("A100-40GB-SXM"), "A100");
  EXPECT_EQ(gpu_family("A100-80GB-SXM"), "A100");
  EXPECT_EQ(gpu_family("A100-80GB-PCIE"), "A100-PCIE");
  EXPECT_EQ(gpu_family("H100-96GB-500W"), "H100-500W");
}

}  // namespace
}  // namespace copus
