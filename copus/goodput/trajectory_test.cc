// Counts the moves of whole runs, in which the policy decides many times, by believed step times
// and a noise scale with an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <sstream>

#include "copus/goodput/goodput_testing.h"
#include "copus/goodput/policy.h"
#include "copus/goodput/step_times.h"

namespace copus {
namespace {

using Int = std::int64_t;

// The machine below has its best batches between 16 and 512 by plain Goodput.
PolicyOptions plain() {
  PolicyOptions options;
  options.kind = GoodputKind::kPlain;
  return options;
}

// A machine with three layouts, each the fastest over a range of batches. Predictions are off by a
// factor per part and a deviation per layout, steps scatter by 5%.
class Machine {
 public:
  explicit Machine(std::uint64_t seed, double step_noise = 0.05, double model_error = 0.1)
      : random_(seed), step_noise_(step_noise) {
    std::normal_distribution<double> unit;
    auto off = [&](double sd) { return std::exp(sd * unit(random_)); };
    const double compute = off(model_error), fixed = off(2 * model_error);
    struct LayoutCosts {
      Int dp, pp;
      double per_sample, bubble, reduction;
    };
    for (const LayoutCosts& at :
         {LayoutCosts{2, 4, 0.0120, 0.25, 0.05}, LayoutCosts{4, 2, 0.0075, 0.20, 0.40},
          LayoutCosts{8, 1, 0.0045, 0, 1.20}}) {
      const double own = off(model_error / 3);
      for (Int batch = 16; batch <= 512; batch *= 2) {
        const double work = static_cast<double>(batch) * at.per_sample;
        Candidate candidate;
        candidate.at.plan.dp = at.dp;
        candidate.at.plan.pp = at.pp;
        candidate.at.global_batch = batch;
        candidate.predicted.compute = Seconds(work);
        candidate.predicted.pipeline = Seconds(at.bubble);
        candidate.predicted.dp = Seconds(at.reduction);
        candidates_.push_back(candidate);
        truth_.emplace_back(own * (compute * work + fixed * (at.bubble + at.reduction)));
      }
    }
  }

  const std::vector<Candidate>& candidates() const { return candidates_; }
  Seconds truth(std::size_t i) const { return truth_[i]; }
  std::size_t index(const Configuration& at) const {
    const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                    [&](const Candidate& candidate) { return candidate.at == at; });
    return static_cast<std::size_t>(found - candidates_.begin());
  }
  Seconds step(std::size_t i) {
    return truth_[i] * (1 + step_noise_ * std::normal_distribution<double>()(random_));
  }

 private:
  std::mt19937_64 random_;
  double step_noise_;
  std::vector<Candidate> candidates_;
  std::vector<Seconds> truth_;
};

struct Move {
  Int step = 0;
  Configuration from, to;
};

struct Trajectory {
  std::vector<Move> moves;
  std::vector<Configuration> at;  // after each decision

  Int count() const { return static_cast<Int>(moves.size()); }
  Int moves_after(Int step) const {
    return std::count_if(moves.begin(), moves.end(),
                         [&](const Move& move) { return move.step > step; });
  }
  // A -> B -> A in fewer than `steps`.
  Int returns_within(Int steps) const {
    Int returns = 0;
    for (std::size_t i = 1; i < moves.size(); ++i) {
      if (moves[i].to == moves[i - 1].from && moves[i].step - moves[i - 1].step < steps) ++returns;
    }
    return returns;
  }
};

constexpr Int kSteps = 4000, kDecideEvery = 10;

using NoiseAt = std::function<std::optional<NoiseEstimate>(Int step)>;

Trajectory run(Machine& machine, const PolicyOptions& options, const NoiseAt& noise) {
  Trajectory trajectory;
  StepTimes times;
  std::size_t now = 0;
  Situation situation;
  const std::vector<Candidate>& candidates = machine.candidates();
  for (Int step = 1; step <= kSteps; ++step) {
    times.observe(candidates[now], machine.step(now));
    ++situation.steps_here;
    if (step % kDecideEvery != 0) continue;
    situation.choices.clear();
    for (const Candidate& candidate : candidates) {
      const bool stays = same_placement(candidate.at.plan, candidates[now].at.plan);
      situation.choices.push_back({candidate.at, times.believe(candidate).time,
                                   times.ratio(candidate, candidates[now]).log_sd,
                                   Seconds(stays ? 0.1 : 30)});
    }
    situation.now = situation.choices[now];
    situation.noise = noise(step);
    const Decision decision = decide(options, situation);
    if (decision.move) {
      trajectory.moves.push_back({step, candidates[now].at, decision.to});
      situation.came_from = candidates[now].at;
      situation.steps_here = 0;
      now = machine.index(decision.to);
    }
    trajectory.at.push_back(candidates[now].at);
  }
  return trajectory;
}

// Estimates around the truth whose error is forgotten over 40 steps, as a smoothed estimate's is.
NoiseAt noisy(const std::function<double(Int)>& truth, double sd, std::uint64_t seed) {
  return [=, random = std::mt19937_64(seed), error = 0.0](Int step) mutable {
    const double keep = std::exp(-kDecideEvery / 40.0);
    error =
        keep * error + std::sqrt(1 - keep * keep) * sd * std::normal_distribution<double>()(random);
    return estimate(truth(step) * std::exp(error), sd);
  };
}

// The machine's best batches are from 16 to 512 at the noise scales of these.
double growing(Int step) { return 4 + 396 * (1 - std::exp(-static_cast<double>(step) / 1200)); }
double constant(Int) { return 60; }
double falling(Int step) { return 10 + 300 * std::exp(-static_cast<double>(step) / 1200); }

// True Goodput over a run, relative to a run that is always in the best configuration, without
// pauses.
double share_of_best(const Machine& machine, const Trajectory& trajectory,
                     const std::function<double(Int)>& truth) {
  const PolicyOptions options = plain();
  double sum = 0;
  for (std::size_t i = 0; i < trajectory.at.size(); ++i) {
    const double critical = options.calibration * truth(static_cast<Int>(i + 1) * kDecideEvery);
    auto goodput_at = [&](const Configuration& at) {
      const auto batch = static_cast<double>(at.global_batch);
      return goodput(options.kind, batch / machine.truth(machine.index(at)).v, batch, critical);
    };
    double best = 0;
    for (const Candidate& candidate : machine.candidates()) {
      best = std::max(best, goodput_at(candidate.at));
    }
    sum += goodput_at(trajectory.at[i]) / best;
  }
  return sum / static_cast<double>(trajectory.at.size());
}

// Calls `visit` for many runs with the default options. Machines and errors differ.
void for_each_run(const char* name, const std::function<double(Int)>& truth, double sd,
                  const std::function<void(const Trajectory&)>& visit) {
  constexpr int kRuns = 15;
  double moves = 0, share = 0;
  Int most = 0;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    Machine machine(seed);
    const Trajectory trajectory = run(machine, plain(), noisy(truth, sd, 1000 + seed));
    EXPECT_EQ(trajectory.returns_within(2 * PolicyOptions().dwell_steps), 0);
    moves += static_cast<double>(trajectory.count()) / kRuns;
    most = std::max(most, trajectory.count());
    share += share_of_best(machine, trajectory, truth) / kRuns;
    visit(trajectory);
  }
  fmt::print("{}, error {:.0f}%: {:.1f} moves (at most {}), {:.1f}% of the best Goodput\n", name,
             100 * sd, moves, most, 100 * share);
}

TEST(Trajectory, WithNoBarsAndNoNoiseItIsAtTheArgmaxAfterEachDecision) {
  Machine machine(1, 0, 0);
  PolicyOptions options = plain();
  options.margin = options.batch_margin = 0;
  options.caution = options.noise_caution = 0;
  options.dwell_steps = 0;
  options.growth = 1000;
  options.horizon = Seconds(kInfinity);
  for (const auto& truth : {growing, constant, falling}) {
    const Trajectory trajectory = run(machine, options, noisy(truth, 0, 1));
    for (std::size_t i = 0; i < trajectory.at.size(); ++i) {
      const double critical = 2 * truth(static_cast<Int>(i + 1) * kDecideEvery);
      auto goodput_at = [&](const Configuration& at) {
        const auto batch = static_cast<double>(at.global_batch);
        return goodput(options.kind, batch / machine.truth(machine.index(at)).v, batch, critical);
      };
      for (const Candidate& candidate : machine.candidates()) {
        EXPECT_GE(goodput_at(trajectory.at[i]), (1 - 1e-12) * goodput_at(candidate.at));
      }
    }
  }
}

TEST(Trajectory, AGrowingNoiseScaleTakesAMoveADoubling) {
  for (const double sd : {0.1, 0.3}) {
    for_each_run("growing", growing, sd, [](const Trajectory& trajectory) {
      EXPECT_GE(trajectory.at.back().global_batch, 256);  // four doublings of 16, or five
      EXPECT_LE(trajectory.count(), 5 + 2);
    });
  }
}

// Now and then a gain that lies close to its bar is taken late: of 60 runs, 7 times with an error
// of 10%, and 24 times with 30%. Without the bar on the noise scale, the latter makes 12 moves.
TEST(Trajectory, AConstantNoiseScaleLetsItSettle) {
  for (const auto& [sd, most_late] : {std::pair(0.1, 4), std::pair(0.3, 10)}) {
    Int late = 0;
    for_each_run("constant", constant, sd, [&](const Trajectory& trajectory) {
      EXPECT_LE(trajectory.count(), 3 + 3);
      late += trajectory.moves_after(kSteps / 2);
    });
    EXPECT_LE(late, most_late) << "error " << sd;
  }
}

TEST(Trajectory, AFallingNoiseScaleIsFollowedUpAndDown) {
  for (const double sd : {0.1, 0.3}) {
    for_each_run("falling", falling, sd, [](const Trajectory& trajectory) {
      Int highest = 0;
      for (const Configuration& at : trajectory.at) highest = std::max(highest, at.global_batch);
      EXPECT_GE(highest, 128);
      EXPECT_LT(trajectory.at.back().global_batch, highest);
      EXPECT_LE(trajectory.count(), 5 + 4 + 2);
    });
  }
}

// A noise scale with the shape of a real run: unknown at first, then near 0, a fast rise, and flat
// and noisy.
constexpr const char* kRunLike = R"(
  20     3.1   0.2    41
  60     2.4   1.1   6.9
 100     3.8   2.2   7.1
 160     6.9   4.8  10.4
 220    11.2   8.3  15.9
 300    19.5  14.6  27.0
 400    38.0  29.9  49.1
 520    61.7  49.0  78.8
 700    97.3  76.1   127
 900     131   102   171
1150     118    92   154
1400     149   117   193
1700     137   108   177
2000     166   129   217
2300     128   100   166
2600     158   124   204
3000     144   113   187
3400     171   134   221
3800     139   109   180
)";

TEST(Trajectory, ARunLikeTraceIsFollowedUpwardsOnly) {
  struct Row {
    Int step;
    NoiseEstimate noise;
  };
  std::vector<Row> rows;
  std::istringstream text(kRunLike);
  for (Row row; text >> row.step >> row.noise.gns >> row.noise.low >> row.noise.high;) {
    rows.push_back(row);
  }
  ASSERT_EQ(rows.size(), 19U);
  auto recorded = [&](Int step) -> std::optional<NoiseEstimate> {
    std::optional<NoiseEstimate> last;
    for (const Row& row : rows) {
      if (row.step <= step) last = row.noise;
    }
    return last;
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Machine machine(seed);
    const Trajectory trajectory = run(machine, plain(), recorded);
    ASSERT_GE(trajectory.count(), 3);
    EXPECT_LE(trajectory.count(), 5);
    EXPECT_GE(trajectory.moves.front().step, 160);  // not by the first, wide intervals
    EXPECT_LE(trajectory.moves_after(1700), 1);     // flat: at most one, at a new high
    for (const Move& move : trajectory.moves) {
      EXPECT_GE(move.to.global_batch, move.from.global_batch);
    }
  }
}

}  // namespace
}  // namespace copus
