// Whole runs on machines that the predictions do not fit: what the controller tries, what that
// costs, and where the run ends. The batch is fixed, so that only layouts differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "copus/goodput/controller.h"

namespace copus {
namespace {

using Int = std::int64_t;

constexpr Int kBatch = 128;

// What a machine's layouts take: predicted, and in truth.
struct WrongMachine {
  std::vector<Candidate> candidates;  // by predicted time
  std::vector<Seconds> truth;

  std::size_t index(const Configuration& at) const {
    const auto found = std::find_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& candidate) { return candidate.at == at; });
    return static_cast<std::size_t>(found - candidates.begin());
  }
  Seconds best() const { return *std::min_element(truth.begin(), truth.end()); }
};

struct Wrong {
  double uniform = 1;  // all layouts take this many times what is predicted
  double compute = 1, tp = 1, pipeline = 1, dp = 1, rest = 1;  // and these parts this many times
  double deviation = 0;  // spread of the layouts, on a log scale
  int lucky = -1;        // this layout takes 1/1.3 of what the others say
};

// Layouts whose predicted parts differ: from all pipeline to all data-parallel, with more or less
// tensor-parallel traffic. A step takes about 0.5 s.
WrongMachine machine(int layouts, const Wrong& wrong, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> unit;
  std::uniform_real_distribution<double> share(0, 0.15);
  WrongMachine made;
  for (int i = 0; i < layouts; ++i) {
    Candidate candidate;
    candidate.at.global_batch = kBatch;
    candidate.at.plan.dp = Int{1} << (i % 6);
    candidate.at.plan.tp = 1 + i / 6;
    candidate.at.plan.pp = 2;
    StepBreakdown& parts = candidate.predicted;
    parts.compute = Seconds(0.4);
    parts.tp = Seconds(share(random));
    parts.pipeline = Seconds(share(random));
    parts.dp = Seconds(share(random));
    parts.overhead = Seconds(0.1 * share(random));
    made.candidates.push_back(candidate);
  }
  std::stable_sort(
      made.candidates.begin(), made.candidates.end(),
      [](const auto& a, const auto& b) { return a.predicted.total() < b.predicted.total(); });
  for (const Candidate& candidate : made.candidates) {
    const StepBreakdown& parts = candidate.predicted;
    const bool is_lucky = static_cast<int>(made.truth.size()) == wrong.lucky;
    made.truth.push_back(
        wrong.uniform * std::exp(wrong.deviation * unit(random)) / (is_lucky ? 1.3 : 1) *
        (wrong.compute * parts.compute + wrong.tp * parts.tp + wrong.pipeline * parts.pipeline +
         wrong.dp * parts.dp + wrong.rest * parts.overhead));
  }
  return made;
}

struct Way {
  Int moves = 0, moves_of_policy = 0;
  Int entered_again = 0;  // a layout was entered a second time, but for the return from a try
  Seconds time;           // of the run, with its pauses
  Seconds wasted;  // pauses, and steps slower than the fastest layout that was visited before
  std::size_t end = 0;
};

// A run of the controller on a machine; steps scatter.
class FixedBatch final : public Job {
 public:
  FixedBatch(const WrongMachine& machine, Seconds length, Seconds pause, std::uint64_t seed)
      : machine_(machine), length_(length), pause_(pause), random_(seed) {
    entered_.front() = 1;
  }

  bool done() const override { return way.time >= length_; }
  Result<StepReport> step() override {
    StepReport report;
    report.step = ++step_;
    report.samples = step_ * kBatch;
    report.time = machine_.truth[now_] * std::exp(0.03 * unit_(random_));
    for (const double batch : {8.0, static_cast<double>(kBatch)}) {
      report.norms.push_back({batch, (1 + 1000 / batch) * (1 + 0.005 * unit_(random_)), 1});
    }
    way.time += report.time;
    fastest_ = step_ == 1 ? machine_.truth[now_] : min(fastest_, machine_.truth[now_]);
    way.wasted += max(Seconds(), machine_.truth[now_] - fastest_);
    return report;
  }
  std::optional<Seconds> remaining() const override { return length_ - way.time; }
  Result<void> observed(const StepReport&) override { return {}; }
  Result<void> decided(const Decision& decision) override {
    if (!decision.move) return {};
    ++way.moves;
    const bool is_try = decision.why.find("a try;") != std::string::npos;
    const bool is_return = decision.why.find(": after ") != std::string::npos;
    if (!is_try && !is_return) ++way.moves_of_policy;
    if (!is_return && entered_.at(machine_.index(decision.to)) > 0) ++way.entered_again;
    return {};
  }
  Result<MoveReport> move(const Configuration& to) override {
    now_ = machine_.index(to);
    ++entered_.at(now_);
    way.end = now_;
    way.time += pause_;
    way.wasted += pause_;
    return MoveReport{true, "", pause_};
  }

  Way way;

 private:
  const WrongMachine& machine_;
  Seconds length_, pause_, fastest_;
  std::mt19937_64 random_;
  std::normal_distribution<double> unit_;
  std::size_t now_ = 0;
  Int step_ = 0;
  std::vector<Int> entered_ = std::vector<Int>(machine_.truth.size(), 0);
};

Way run_fixed(const WrongMachine& machine, Seconds length, std::uint64_t seed = 1,
              Seconds pause = Seconds(0.5), double probe = ControllerOptions().probe) {
  ControllerOptions options;
  options.probe = probe;
  FixedBatch job(machine, length, pause, seed);
  Controller controller(options, machine.candidates.front(), machine.candidates,
                        [pause](const Configuration&, const Configuration&) { return pause; });
  EXPECT_TRUE(drive(job, controller));
  return job.way;
}

double share_wasted(const Way& way) { return way.wasted / way.time; }
double behind(const WrongMachine& machine, const Way& way) {
  return machine.truth[way.end] / machine.best() - 1;
}

// Whatever the factor, the layout that is predicted to be the fastest is the fastest.
TEST(TryingLayouts, AMachineThatIsSlowThroughoutIsNoReasonToMove) {
  for (const int layouts : {8, 40}) {
    for (const double factor : {1.0, 2.0, 3.0, 4.0, 6.0, 10.0, 50.0}) {
      for (const double steps : {400.0, 4000.0}) {
        for (const std::uint64_t seed : {1, 2, 3}) {
          const WrongMachine made = machine(layouts, {.uniform = factor}, seed);
          const Way way = run_fixed(made, steps * made.truth[0], seed);
          SCOPED_TRACE(fmt::format("{} layouts, x{}, {} steps", layouts, factor, steps));
          EXPECT_EQ(way.end, 0U);
          EXPECT_EQ(way.moves_of_policy, 0);
          EXPECT_EQ(way.entered_again, 0);
          EXPECT_LE(share_wasted(way), 0.015);
        }
      }
    }
  }
}

TEST(TryingLayouts, WithoutThemAMachineThatIsSlowThroughoutIsLeftAlone) {
  for (const double factor : {1.0, 3.0, 50.0}) {
    const WrongMachine made = machine(40, {.uniform = factor}, 1);
    EXPECT_EQ(run_fixed(made, 4000 * made.truth[0], 1, Seconds(0.5), 0).moves, 0);
  }
}

TEST(TryingLayouts, FindsTheOneLayoutThatIsFasterThanPredicted) {
  for (const int layouts : {8, 40}) {
    for (int lucky = 1; lucky < 8; ++lucky) {
      const WrongMachine made = machine(layouts, {.uniform = 3, .lucky = lucky}, 1);
      const Way way = run_fixed(made, 20'000 * made.truth[0]);
      SCOPED_TRACE(fmt::format("layout {} of {}", lucky, layouts));
      EXPECT_LE(behind(made, way), 0.03);
      EXPECT_LE(share_wasted(way), 0.01);
      EXPECT_EQ(way.entered_again, 0);
    }
  }
}

// Parts are off by factors of 0.2 to 20, and layouts by another 50%.
struct OverRandomMachines {
  int runs = 0, near_best = 0;
  double most_wasted = 0, mean_behind = 0;
};
OverRandomMachines over_random_machines(int layouts, double steps, int runs) {
  OverRandomMachines all;
  for (int seed = 1; seed <= runs; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::uniform_real_distribution<double> off(std::log(0.2), std::log(20));
    const auto draw = [&] { return std::exp(off(random)); };
    const Wrong wrong{.compute = draw(),
                      .tp = draw(),
                      .pipeline = draw(),
                      .dp = draw(),
                      .rest = draw(),
                      .deviation = 0.5};
    const WrongMachine made = machine(layouts, wrong, static_cast<std::uint64_t>(seed));
    const Way way = run_fixed(made, steps * made.best());
    EXPECT_EQ(way.entered_again, 0) << seed;
    all.most_wasted = std::max(all.most_wasted, share_wasted(way));
    all.mean_behind += behind(made, way) / runs;
    if (behind(made, way) <= 0.03) ++all.near_best;
    ++all.runs;
  }
  fmt::print(
      "{} layouts, {} steps of the best: {} of {} end within 3% of the best, {:.1f}% behind "
      "in the mean; tries take at most {:.2f}%\n",
      layouts, steps, all.near_best, all.runs, 100 * all.mean_behind, 100 * all.most_wasted);
  return all;
}

TEST(TryingLayouts, FindsTheBestOfAFewOnAMachineThatNobodyPredicted) {
  const OverRandomMachines all = over_random_machines(8, 20'000, 8);
  EXPECT_LE(all.most_wasted, 0.015);
  EXPECT_EQ(all.near_best, 8);
}

TEST(TryingLayouts, FindsTheBestOfManyOnAMachineThatNobodyPredictedIfTheRunIsLong) {
  const OverRandomMachines all = over_random_machines(40, 60'000, 3);
  EXPECT_LE(all.most_wasted, 0.015);
  EXPECT_EQ(all.near_best, 3);
}

}  // namespace
}  // namespace copus
