#include "copus/validate/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <vector>

namespace copus {
namespace {

// A table of made-up runs with made-up prices. A deque holds the runs, so that the pointers to them
// stay valid.
class Table {
 public:
  struct Row {
    double measured = 0;  // 0: no measured time
    double predicted = 0;
    std::string source = "lab";
    std::string model = "m";
    std::int64_t gpus = 8;
  };
  MeasuredRun& add(const Row& row) {
    MeasuredRun& run = runs_.emplace_back();
    run.id = fmt::format("r{}", runs_.size());
    run.source = row.source;
    run.model.name = row.model;
    run.cluster.gpu.name = "GPU";
    run.plan.dp = row.gpus;
    if (row.measured > 0) run.step_time = Seconds(row.measured);
    RunPrice price;
    price.step_time = Seconds(row.predicted);
    price.fits = true;
    priced_.push_back({&run, price});
    return run;
  }
  MeasuredRun& add(double measured, double predicted) {
    return add(Row{.measured = measured, .predicted = predicted});
  }
  // Adds a run that cannot be priced.
  MeasuredRun& add_problem(const std::string& problem) {
    MeasuredRun& run = add(1, 1);
    run.problem = problem;
    priced_.back().price.reset();
    return run;
  }
  PricedRun& last() { return priced_.back(); }
  std::vector<PricedRun>& runs() { return priced_; }
  Accuracy accuracy() const { return accuracy_of(priced_, "all"); }

 private:
  std::deque<MeasuredRun> runs_;
  std::vector<PricedRun> priced_;
};

TEST(StepTimeError, IsPredictedOverMeasured) {
  Table table;
  table.add(1, 1.05);  // +5%
  table.add(2, 1.8);   // -10%
  table.add(4, 5);     // +25%
  table.add(10, 6);    // -40%
  const Accuracy a = table.accuracy();
  EXPECT_EQ(a.timed, 4U);
  EXPECT_NEAR(*a.mape, 0.20, 1e-12);
  EXPECT_NEAR(*a.median_ape, 0.175, 1e-12);  // between 10% and 25%
  EXPECT_NEAR(*a.bias, -0.05, 1e-12);
  EXPECT_NEAR(*a.within_10pct, 0.5, 1e-12);
}

TEST(StepTimeError, TakesRunsThatWorkedAndHaveATime) {
  Table table;
  table.add(1, 1.5);
  table.add(1, 9).failed = true;
  table.add(0, 9);
  table.add_problem("an unknown GPU");
  const Accuracy a = table.accuracy();
  EXPECT_EQ(a.rows, 4U);
  EXPECT_EQ(a.priced, 3U);
  EXPECT_EQ(a.timed, 1U);
  EXPECT_NEAR(*a.mape, 0.5, 1e-12);
}

TEST(StepTimeError, IsAbsentWithoutRows) {
  const Accuracy a = Table().accuracy();
  EXPECT_EQ(a.rows, 0U);
  EXPECT_FALSE(a.mape || a.median_ape || a.bias || a.within_10pct);
  EXPECT_FALSE(a.spearman_median || a.spearman_mean || a.regret_mean || a.regret_max);
  EXPECT_FALSE(a.memory_mape || a.memory_median_ape);
}

TEST(MeanRanks, TiesShareTheirMean) {
  const std::vector<double> values = {30, 10, 20, 20, 20, 5};
  EXPECT_EQ(mean_ranks(values), (std::vector<double>{6, 2, 4, 4, 4, 1}));
  EXPECT_TRUE(mean_ranks({}).empty());
}

TEST(Spearman, MatchesTheTextbook) {
  const std::vector<double> a = {1, 2, 3, 4, 5};
  EXPECT_NEAR(*spearman(a, std::vector<double>{10, 20, 30, 40, 50}), 1, 1e-12);
  EXPECT_NEAR(*spearman(a, std::vector<double>{5, 4, 3, 2, 1}), -1, 1e-12);
  // 1 - 6*sum(d^2)/(n(n^2-1)) with d = -1, 1, -1, 1, 0.
  EXPECT_NEAR(*spearman(a, std::vector<double>{2, 1, 4, 3, 5}), 1 - 6.0 * 4 / 120, 1e-12);
}

TEST(Spearman, CorrelatesMeanRanksWhereValuesTie) {
  // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
  EXPECT_NEAR(*spearman(std::vector<double>{1, 2, 2, 3}, std::vector<double>{1, 2, 3, 4}),
              4.5 / std::sqrt(4.5 * 5), 1e-12);
  EXPECT_FALSE(spearman(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3}));
}

TEST(Groups, OfFewerThanFourRowsAreLeftOut) {
  Table table;
  for (const double t : {1.0, 2.0, 3.0}) table.add(t, 1 / t);  // predicted in reverse order
  EXPECT_EQ(table.accuracy().groups, 0U);
  EXPECT_FALSE(table.accuracy().regret_mean);
  table.add(4, 0.25);
  EXPECT_EQ(table.accuracy().groups, 1U);
  EXPECT_NEAR(*table.accuracy().spearman_median, -1, 1e-12);
}

TEST(Groups, AreRunsThatDifferInTheirPlanAlone) {
  Table table;
  for (const double t : {1.0, 2.0, 3.0, 4.0}) {
    table.add({.measured = t, .predicted = t});
    table.add({.measured = t, .predicted = 5 - t, .source = "other lab"});
    table.add({.measured = t, .predicted = t, .model = "other model"});
    table.add({.measured = t, .predicted = t, .gpus = 16});
    table.add(t, t).global_batch = 2;
    table.add(t, t).seq_len = 2;
    table.add(t, t).cluster.gpu.name = "other GPU";
  }
  const Accuracy a = table.accuracy();
  EXPECT_EQ(a.groups, 7U);
  EXPECT_NEAR(*a.spearman_median, 1, 1e-12);
  EXPECT_NEAR(*a.spearman_mean, 5.0 / 7, 1e-12);
}

TEST(Groups, ThatArePredictedAllTheSameHaveNoRankCorrelation) {
  Table table;
  for (const double t : {1.0, 2.0, 3.0, 4.0}) table.add(t, 7);
  EXPECT_NEAR(*table.accuracy().spearman_median, 0, 1e-12);
  Table same;
  for (const double t : {1.0, 2.0, 3.0, 4.0}) same.add(7, t);
  EXPECT_EQ(same.accuracy().groups, 1U);
  EXPECT_FALSE(same.accuracy().spearman_median);  // equal times have no order
  EXPECT_NEAR(*same.accuracy().regret_max, 0, 1e-12);
}

TEST(Regret, IsWhatThePlanPredictedFastestCosts) {
  Table table;
  table.add(10, 4);
  table.add(12, 3);  // predicted fastest
  table.add(15, 5);
  table.add(20, 6);
  EXPECT_NEAR(*table.accuracy().regret_mean, 0.2, 1e-12);
  for (const double t : {1.0, 2.0, 3.0, 4.0}) {
    table.add({.measured = t, .predicted = t, .model = "other"});
  }
  EXPECT_NEAR(*table.accuracy().regret_mean, 0.1, 1e-12);
  EXPECT_NEAR(*table.accuracy().regret_max, 0.2, 1e-12);
}

TEST(Regret, IsTheMeanOfPlansPredictedTheSame) {
  Table table;
  table.add(10, 3);
  table.add(14, 3);
  table.add(15, 5);
  table.add(20, 6);
  EXPECT_NEAR(*table.accuracy().regret_mean, 0.2, 1e-12);
}

TEST(Ranking, IsTheSameWhenAllPredictionsAreScaled) {
  Table table;
  const double measured[] = {3, 1, 4, 1.5, 9, 2.6};
  const double predicted[] = {2, 1.4, 5, 1.2, 7, 3};
  for (std::size_t i = 0; i < 6; ++i) table.add(measured[i], predicted[i]);
  const Accuracy before = table.accuracy();
  for (const double scale : {0.01, 0.7, 3.0, 1e6}) {
    Table scaled = table;
    for (PricedRun& priced : scaled.runs())
      priced.price->step_time = scale * priced.price->step_time;
    EXPECT_EQ(scaled.accuracy().spearman_median, before.spearman_median);
    EXPECT_EQ(scaled.accuracy().regret_mean, before.regret_mean);
    EXPECT_NE(scaled.accuracy().mape, before.mape);
  }
}

TEST(MemoryError, TakesRunsThatWorkedAndHaveAPeak) {
  Table table;
  table.add(1, 1).peak_memory = gib(40);
  table.last().price->peak_memory = gib(50);  // +25%
  table.add(1, 1).peak_memory = gib(20);
  table.last().price->peak_memory = gib(19);  // -5%
  table.add(1, 1).peak_memory = gib(10);
  table.last().price->peak_memory = gib(9);  // -10%
  MeasuredRun& failed = table.add(0, 1);
  failed.failed = true;
  failed.peak_memory = gib(1);
  table.add(1, 1);
  const Accuracy a = table.accuracy();
  EXPECT_EQ(a.memory_rows, 3U);
  EXPECT_NEAR(*a.memory_mape, 0.40 / 3, 1e-12);
  EXPECT_NEAR(*a.memory_median_ape, 0.10, 1e-12);
}

TEST(Fit, CountsEveryPricedRunOnce) {
  Table table;
  const auto add = [&](bool failed, bool fits, int times) {
    for (int i = 0; i < times; ++i) {
      table.add(1, 1).failed = failed;
      table.last().price->fits = fits;
    }
  };
  add(false, true, 1);
  add(false, false, 2);
  add(true, true, 3);
  add(true, false, 4);
  table.add_problem("no plan");
  const FitConfusion fit = table.accuracy().fit;
  EXPECT_EQ(fit.worked_fit, 1U);
  EXPECT_EQ(fit.worked_no_fit, 2U);
  EXPECT_EQ(fit.failed_fit, 3U);
  EXPECT_EQ(fit.failed_no_fit, 4U);
}

TEST(AccuracyReport, SplitsASourceThatHasOneNodeAndSeveral) {
  Table table;
  table.add({.measured = 1, .predicted = 1.1, .source = "b"});
  table.add({.measured = 1, .predicted = 1.3, .source = "b", .gpus = 16});
  table.add({.measured = 1, .predicted = 1, .source = "a"});
  const AccuracyReport report = accuracy_report(table.runs());
  ASSERT_EQ(report.sources.size(), 2U);
  EXPECT_EQ(report.sources[0].all.source, "b");
  EXPECT_NEAR(*report.sources[0].one_node->mape, 0.1, 1e-12);
  EXPECT_NEAR(*report.sources[0].several_nodes->mape, 0.3, 1e-12);
  EXPECT_EQ(report.sources[1].all.source, "a");
  EXPECT_FALSE(report.sources[1].one_node || report.sources[1].several_nodes);
  EXPECT_EQ(report.all.rows, 3U);
}

TEST(WorstRuns, AreTheLargestErrorsOfEitherSign) {
  Table table;
  table.add(1, 1.1);
  table.add(1, 0.2);
  table.add(1, 1.5);
  table.add(1, 9).failed = true;
  const auto worst = worst_runs(table.runs(), 2);
  ASSERT_EQ(worst.size(), 2U);
  EXPECT_EQ(worst[0]->run->id, "r2");
  EXPECT_EQ(worst[1]->run->id, "r3");
  EXPECT_EQ(worst_runs(table.runs(), 99).size(), 3U);
}

TEST(NotPriced, CountsReasonsMostFirst) {
  Table table;
  table.add(1, 1);
  table.add_problem("rare");
  table.add_problem("common");
  table.add_problem("common");
  const auto reasons = not_priced(table.runs());
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_EQ(reasons[0].reason, "common");
  EXPECT_EQ(reasons[0].runs.size(), 2U);
  EXPECT_EQ(reasons[1].runs[0]->id, "r2");
}

TEST(Assumptions, CountsRows) {
  Table table;
  table.add(1, 1).assumed = {"dp=8", "vocab=51200"};
  table.add(1, 1).assumed = {"vocab=51200"};
  const auto assumed = assumptions(table.runs());
  ASSERT_EQ(assumed.size(), 2U);
  EXPECT_EQ(assumed[0].text, "vocab=51200");
  EXPECT_EQ(assumed[0].rows, 2U);
  EXPECT_EQ(assumed[1].rows, 1U);
}

}  // namespace
}  // namespace copus
