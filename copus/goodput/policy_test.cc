#include "copus/goodput/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "copus/goodput/goodput_testing.h"

namespace copus {
namespace {

using Int = std::int64_t;

Configuration configuration(Int dp, Int tp, Int pp, Int batch, Int micro_batch = 1) {
  Configuration made;
  made.plan.dp = dp;
  made.plan.tp = tp;
  made.plan.pp = pp;
  made.plan.micro_batch = micro_batch;
  made.global_batch = batch;
  return made;
}

// Options without bars: the decision is the argmax of Goodput.
PolicyOptions no_bars() {
  PolicyOptions options;
  options.margin = options.batch_margin = 0;
  options.caution = options.noise_caution = 0;
  options.dwell_steps = 0;
  return options;
}

double goodput_of(const PolicyOptions& options, const Choice& choice, const Situation& situation) {
  const auto batch = static_cast<double>(choice.at.global_batch);
  return goodput(options.kind, batch / choice.step_time.v, batch,
                 options.calibration * situation.noise->gns);
}

// Which choices the options allow, stated independently of the policy's code.
std::vector<Choice> allowed(const PolicyOptions& options, const Situation& situation) {
  std::vector<Choice> kept;
  for (const Choice& choice : situation.choices) {
    const double ratio = static_cast<double>(choice.at.global_batch) /
                         static_cast<double>(situation.now.at.global_batch);
    if (ratio > options.growth || 1 / ratio > options.growth) continue;
    if (choice.at == situation.now.at) continue;
    if (options.adapt != Adapt::kFull && !same_placement(choice.at.plan, situation.now.at.plan)) {
      continue;
    }
    kept.push_back(choice);
  }
  return kept;
}

// A table of choices with irregular step times.
Situation random_situation(std::mt19937_64& random) {
  auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  auto pick = [&](Int n) { return std::uniform_int_distribution<Int>(0, n - 1)(random); };
  Situation situation;
  for (Int dp = 1; dp <= 8; dp *= 2) {
    for (Int pp = 1; dp * pp <= 8; pp *= 2) {
      for (Int batch = 16; batch <= 256; batch *= 2) {
        if (pick(3) == 0) continue;
        const Seconds pause(pick(4) == 0 ? 0 : uniform(0, 60));
        situation.choices.push_back(
            {configuration(dp, 8 / dp / pp, pp, batch, 1 + pick(2)),
             Seconds(0.1 + static_cast<double>(batch) * uniform(0.01, 0.02)), uniform(0, 0.2),
             pause});
      }
    }
  }
  const auto here = static_cast<std::size_t>(pick(static_cast<Int>(situation.choices.size())));
  const auto before = static_cast<std::size_t>(pick(static_cast<Int>(situation.choices.size())));
  situation.now = situation.choices[here];
  situation.noise = estimate(uniform(5, 500), uniform(0, 0.5));
  situation.steps_here = pick(60);
  if (pick(2) == 0) situation.came_from = situation.choices[before].at;
  if (pick(2) == 0) situation.remaining = Seconds(uniform(0, 2000));
  return situation;
}

PolicyOptions random_options(std::mt19937_64& random) {
  PolicyOptions options;
  options.adapt = random() % 4 == 0 ? Adapt::kBatch : Adapt::kFull;
  options.kind = random() % 2 == 0 ? GoodputKind::kPlain : GoodputKind::kLrAware;
  options.growth = random() % 2 == 0 ? 2 : 4;
  return options;
}

TEST(Policy, WithNoBarsItIsTheArgmax) {
  std::mt19937_64 random(1);
  Int moves = 0;
  for (int round = 0; round < 4000; ++round) {
    Situation situation = random_situation(random);
    for (Choice& choice : situation.choices) choice.pause = {};
    situation.remaining.reset();
    PolicyOptions options = no_bars();
    const PolicyOptions some = random_options(random);
    options.adapt = some.adapt;
    options.kind = some.kind;
    options.growth = some.growth;

    const Configuration* best = &situation.now.at;
    double most = goodput_of(options, situation.now, situation);
    const std::vector<Choice> choices = allowed(options, situation);
    for (const Choice& choice : choices) {
      if (goodput_of(options, choice, situation) <= most) continue;
      most = goodput_of(options, choice, situation);
      best = &choice.at;
    }
    const Decision decision = decide(options, situation);
    EXPECT_EQ(decision.to, *best);
    EXPECT_EQ(decision.move, *best != situation.now.at);
    EXPECT_EQ(decision.candidates, static_cast<Int>(choices.size()));
    moves += decision.move ? 1 : 0;
  }
  EXPECT_GT(moves, 1000);
}

TEST(Policy, NoMoveIsBelowItsBars) {
  std::mt19937_64 random(2);
  Int moves = 0, in_place = 0, keeps = 0;
  for (int round = 0; round < 8000; ++round) {
    const Situation situation = random_situation(random);
    const PolicyOptions options = random_options(random);
    const Decision decision = decide(options, situation);
    if (!decision.move) {
      ++keeps;
      continue;
    }
    ++moves;
    const std::vector<Choice> choices = allowed(options, situation);
    const auto to = std::find_if(choices.begin(), choices.end(),
                                 [&](const Choice& c) { return c.at == decision.to; });
    ASSERT_NE(to, choices.end()) << decision.why;
    const double gain =
        goodput_of(options, *to, situation) / goodput_of(options, situation.now, situation) - 1;
    EXPECT_NEAR(decision.gain, gain, 1e-12);
    const bool stays = same_placement(to->at.plan, situation.now.at.plan);
    in_place += stays ? 1 : 0;
    EXPECT_GE(gain, stays ? options.batch_margin : options.margin);
    if (!stays) {
      EXPECT_GT(std::log1p(gain), options.caution * to->log_sd);
    }
    for (const double off : {-1, 1}) {  // twice the estimate's standard deviation, either way
      Situation other = situation;
      const double sd = std::log(situation.noise->spread()) / (2 * 1.96);
      other.noise->gns *= std::exp(off * options.noise_caution * sd);
      EXPECT_GE(goodput_of(options, *to, other),
                (1 - 1e-9) * goodput_of(options, situation.now, other));
    }
    const Seconds left = situation.remaining.value_or(options.horizon);
    EXPECT_LT(left / (1 + gain) + to->pause, left);
    EXPECT_GE(situation.steps_here, options.dwell_steps);
    if (situation.came_from == to->at) {
      EXPECT_GE(situation.steps_here, 2 * options.dwell_steps);
    }
  }
  EXPECT_GT(moves, 500);
  EXPECT_GT(in_place, 20);
  EXPECT_GT(keeps, 500);
}

TEST(Policy, TheSameSituationInAnyOrderGivesTheSameDecision) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    Situation situation = random_situation(random);
    for (Choice& choice : situation.choices) choice.step_time = Seconds(0.5);  // many ties
    const PolicyOptions options = random_options(random);
    const Decision first = decide(options, situation);
    std::shuffle(situation.choices.begin(), situation.choices.end(), random);
    const Decision second = decide(options, situation);
    EXPECT_EQ(first.move, second.move);
    EXPECT_EQ(first.to, second.to);
    EXPECT_EQ(first.why, second.why);
  }
}

// At batch 16 in a pipeline, critical batch 170: another layout at the same batch, a larger batch.
class FromPipeline : public testing::Test {
 protected:
  FromPipeline() {
    options_.kind = GoodputKind::kPlain;
    situation_.now = {configuration(2, 1, 4, 16, 4), Seconds(0.4), 0, {}};
    situation_.noise = estimate(85);
    situation_.steps_here = 100;
  }
  Choice& offer(const Configuration& at, double step_time) {
    situation_.choices.push_back({at, Seconds(step_time), 0, {}});
    return situation_.choices.back();
  }
  Decision decision() const { return decide(options_, situation_); }

  PolicyOptions options_;
  Situation situation_;
};

TEST_F(FromPipeline, KeepsWhileNothingIsKnown) {
  offer(configuration(8, 1, 1, 16), 0.1);
  options_.adapt = Adapt::kOff;
  EXPECT_EQ(decision().why, "adapting is off");
  options_.adapt = Adapt::kFull;
  situation_.noise = estimate(kInfinity);
  situation_.noise->low = 0;
  EXPECT_EQ(decision().why, "the noise scale is not known yet");
  situation_.noise.reset();
  EXPECT_EQ(decision().why, "the noise scale is not known yet");
  EXPECT_FALSE(decision().move);
  EXPECT_EQ(decision().to, situation_.now.at);
  EXPECT_EQ(decision().goodput, 0);
}

// An interval without an upper end can justify a larger batch, but never a smaller one.
TEST_F(FromPipeline, LowerEndStandsForANoiseScaleWithoutAnUpperOne) {
  situation_.noise = estimate(kInfinity);
  situation_.noise->low = 85;
  situation_.noise->high = kInfinity;
  offer(configuration(2, 1, 4, 32, 4), 0.5);
  EXPECT_TRUE(decision().move) << decision().why;
  EXPECT_EQ(decision().critical_batch, 170);
  situation_.choices.clear();
  situation_.noise->low = 1;
  offer(configuration(2, 1, 4, 8, 4), 0.3);
  EXPECT_FALSE(decision().move) << decision().why;
}

// An interval from 0 to infinity cannot justify another batch.
TEST_F(FromPipeline, NoBatchChangeOnAnIntervalThatIsTooWide) {
  situation_.noise = estimate(85);
  situation_.noise->low = 0;
  situation_.noise->high = kInfinity;
  offer(configuration(2, 1, 4, 32, 4), 0.6);
  EXPECT_FALSE(decision().move) << decision().why;
}

TEST_F(FromPipeline, SaysWhatIsGainedAndWhenItPays) {
  offer(configuration(4, 1, 2, 32, 4), 0.6).pause = Seconds(1.2);
  const Decision made = decision();
  EXPECT_TRUE(made.move);
  EXPECT_EQ(made.why,
            "dp4.tp1.pp2.mb4 at batch 32: Goodput +22.8% (speed x1.33, efficiency x0.92; critical "
            "batch 170), pays its 1.20 s in 5.27 s");
  EXPECT_EQ(made.why, to_text(made.to) + ": " + made.reason);
  options_.kind = GoodputKind::kLrAware;
  EXPECT_NEAR(decision().gain, (1 + made.gain) * std::sqrt(2) - 1, 1e-12);
  EXPECT_NE(decision().why.find("learning rate x1.41"), std::string::npos);
}

TEST_F(FromPipeline, AsksMoreOfALayoutThanOfABatch) {
  options_.margin = 0.1;
  options_.batch_margin = 0.05;
  Choice& choice = offer(configuration(8, 1, 1, 16), 0.4 / 1.08);
  EXPECT_FALSE(decision().move);
  EXPECT_NE(decision().why.find("a change of layout has to gain 10%"), std::string::npos);
  choice.at = configuration(2, 1, 4, 16, 8);  // another micro-batch
  EXPECT_TRUE(decision().move);
}

TEST_F(FromPipeline, AGainHasToBeSure) {
  options_.caution = 0.5;
  Choice& choice = offer(configuration(8, 1, 1, 16), 0.3);  // +33%
  choice.log_sd = 0.5;                                      // ln 1.33 is 0.29
  EXPECT_TRUE(decision().move);
  choice.log_sd = 0.6;
  EXPECT_FALSE(decision().move);
  EXPECT_NE(decision().why.find("its step time is uncertain by a factor of 1.82"),
            std::string::npos);
  options_.caution = 0.4;
  EXPECT_TRUE(decision().move);
}

TEST_F(FromPipeline, AGainOfABatchHasToHoldAcrossTheIntervalOfTheNoiseScale) {
  options_.noise_caution = 2;
  offer(configuration(2, 1, 4, 32), 0.8 * 0.8);
  situation_.noise = estimate(42, 0.1);
  EXPECT_TRUE(decision().move);
  situation_.noise = estimate(42, 0.3);
  EXPECT_FALSE(decision().move);
  EXPECT_GT(decision().gain, options_.batch_margin);
  EXPECT_NE(decision().why.find("it could be -0.6%: the noise scale is uncertain (23.3 to 75.6)"),
            std::string::npos)
      << decision().why;
  // The gain of another layout at the same batch does not depend on the noise scale.
  offer(configuration(8, 1, 1, 16), 0.4 / 1.12);
  EXPECT_TRUE(decision().move);
}

TEST_F(FromPipeline, IsSurerOfTheNoiseScaleBeforeItGoesBack) {
  offer(configuration(2, 1, 4, 32), 0.8 * 0.84);
  situation_.noise = estimate(85, 0.25);
  EXPECT_TRUE(decision().move);
  situation_.came_from = configuration(2, 1, 4, 32);
  EXPECT_FALSE(decision().move);
  EXPECT_NE(decision().why.find("the noise scale is uncertain (52.1 to 139)"), std::string::npos)
      << decision().why;
}

TEST_F(FromPipeline, APauseHasToPayBeforeTheEnd) {
  Choice& choice = offer(configuration(8, 1, 1, 16), 0.3);
  choice.pause = Seconds(30);
  situation_.remaining = Seconds(100);  // saves 25
  EXPECT_FALSE(decision().move);
  EXPECT_NE(
      decision().why.find("its pause of 30.0 s would save only 25.0 s in the 100 s that are left"),
      std::string::npos)
      << decision().why;
  situation_.remaining = Seconds(130);
  EXPECT_TRUE(decision().move);
  situation_.remaining.reset();
  options_.horizon = Seconds(100);
  EXPECT_FALSE(decision().move);
}

TEST_F(FromPipeline, StaysAWhileAndTwiceAsLongBeforeItGoesBack) {
  offer(configuration(8, 1, 1, 16), 0.2);
  auto steps_needed = [&] {
    situation_.steps_here = 0;
    while (!decision().move) ++situation_.steps_here;
    return situation_.steps_here;
  };
  EXPECT_EQ(steps_needed(), 20);
  situation_.came_from = configuration(4, 1, 2, 16);
  EXPECT_EQ(steps_needed(), 20);
  situation_.came_from = configuration(8, 1, 1, 32);  // that layout, at another batch
  EXPECT_EQ(steps_needed(), 40);
  situation_.choices = {
      {configuration(2, 1, 4, 32), Seconds(0.4), 0, {}}};  // up, after it came down
  EXPECT_EQ(steps_needed(), 40);
  situation_.came_from = configuration(2, 1, 4, 8);  // up, after it went up
  EXPECT_EQ(steps_needed(), 20);
}

TEST_F(FromPipeline, TakesTheNextBestWhereTheBestLacksSomething) {
  offer(configuration(8, 1, 1, 32), 0.5).pause = Seconds(1e6);
  const Configuration in_place = configuration(2, 1, 4, 32, 4);
  offer(in_place, 0.6);
  EXPECT_TRUE(decision().move);
  EXPECT_EQ(decision().to, in_place);
  options_.batch_margin = 0.5;
  EXPECT_FALSE(decision().move);
  EXPECT_EQ(decision().to, configuration(8, 1, 1, 32));  // what the best lacks is told
  EXPECT_NE(decision().why.find("pause"), std::string::npos);
}

TEST_F(FromPipeline, GrowsByAFactorAtOnce) {
  offer(configuration(2, 1, 4, 64, 4), 0.8);
  EXPECT_FALSE(decision().move);
  EXPECT_EQ(decision().candidates, 0);
  EXPECT_EQ(decision().why, "no other configuration is allowed");
  EXPECT_EQ(decision().reason, "");
  options_.growth = 4;
  EXPECT_TRUE(decision().move);
}

TEST_F(FromPipeline, AdaptingTheBatchAloneKeepsThePlacement) {
  options_.adapt = Adapt::kBatch;
  offer(configuration(8, 1, 1, 32), 0.2);
  offer(configuration(2, 1, 4, 32, 8), 0.6);
  EXPECT_EQ(decision().to, configuration(2, 1, 4, 32, 8));
  EXPECT_EQ(decision().candidates, 1);
}

TEST_F(FromPipeline, OfEqualsTheLesserChangeIsMade) {
  offer(configuration(1, 2, 4, 16), 0.3);
  offer(configuration(2, 1, 4, 16, 8), 0.3);
  EXPECT_EQ(decision().to, configuration(2, 1, 4, 16, 8));
  situation_.choices.pop_back();
  offer(configuration(8, 1, 1, 16), 0.3);
  EXPECT_EQ(decision().to, configuration(8, 1, 1, 16));  // the simpler plan
}

// The largest batch up to the critical one among the run's own and those that its layout can have;
// the smallest batch if all are above.
TEST(Policy, TrackingGoesToTheCriticalBatchWhateverItCosts) {
  std::mt19937_64 random(4);
  Int up = 0, down = 0, keeps = 0;
  for (int round = 0; round < 4000; ++round) {
    const Situation situation = random_situation(random);
    PolicyOptions options = random_options(random);
    options.adapt = Adapt::kTrack;
    const double critical = options.calibration * situation.noise->gns;
    const Int now = situation.now.at.global_batch;
    const std::vector<Choice> choices = allowed(options, situation);
    Int largest_below = static_cast<double>(now) <= critical ? now : 0, smallest = now;
    for (const Choice& choice : choices) {
      const Int batch = choice.at.global_batch;
      if (static_cast<double>(batch) <= critical) largest_below = std::max(largest_below, batch);
      smallest = std::min(smallest, batch);
    }
    const Decision decision = decide(options, situation);
    EXPECT_EQ(decision.to.global_batch, largest_below > 0 ? largest_below : smallest);
    EXPECT_TRUE(same_placement(decision.to.plan, situation.now.at.plan));
    EXPECT_EQ(decision.candidates, static_cast<Int>(choices.size()));
    const bool elsewhere = decision.to.global_batch != now;
    EXPECT_EQ(decision.move, elsewhere && situation.steps_here >= options.dwell_steps);
    if (!elsewhere) {
      EXPECT_EQ(decision.to, situation.now.at);
    }
    up += decision.to.global_batch > now ? 1 : 0;
    down += decision.to.global_batch < now ? 1 : 0;
    keeps += elsewhere ? 0 : 1;
  }
  EXPECT_GT(up, 100);
  EXPECT_GT(down, 100);
  EXPECT_GT(keeps, 100);
}

TEST_F(FromPipeline, TrackingTakesTheFastestVariantOfABatch) {
  options_.adapt = Adapt::kTrack;
  offer(configuration(2, 1, 4, 32, 1), 9);  // slow, and yet the critical batch is 170
  EXPECT_TRUE(decision().move);
  EXPECT_LT(decision().gain, 0);
  offer(configuration(2, 1, 4, 32, 4), 8);
  offer(configuration(2, 1, 4, 32, 2), 8.5);
  EXPECT_EQ(decision().to, configuration(2, 1, 4, 32, 4));
  EXPECT_EQ(decision().why, "dp2.tp1.pp4.mb4 at batch 32: the critical batch is 170");
  EXPECT_EQ(decision().reason, "the critical batch is 170");
  situation_.noise.reset();
  EXPECT_FALSE(decision().move);
}

}  // namespace
}  // namespace copus
