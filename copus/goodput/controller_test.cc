#include "copus/goodput/controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace copus {
namespace {

using Int = std::int64_t;

Configuration pipelined(Int batch) {
  Configuration at;
  at.plan.dp = 2;
  at.plan.pp = 4;
  at.global_batch = batch;
  return at;
}
Configuration mixed(Int batch) {
  Configuration at = pipelined(batch);
  at.plan.dp = 4;
  at.plan.pp = 2;
  return at;
}
Configuration data_parallel(Int batch) {
  Configuration at = pipelined(batch);
  at.plan.dp = 8;
  at.plan.pp = 1;
  return at;
}

// In seconds, at batch B: pipelined 0.11 + 0.006 B, mixed 0.17 + 0.004 B, data_parallel
// 0.35 + 0.003 B. They cross at 30 and at 180.
Candidate predict(const Configuration& at) {
  const auto batch = static_cast<double>(at.global_batch);
  const auto dp = static_cast<double>(at.plan.dp);
  const auto pp = static_cast<double>(at.plan.pp);
  Candidate candidate{at, {}};
  candidate.predicted.compute = Seconds(0.003 * batch);
  candidate.predicted.pipeline = Seconds((0.02 + 0.001 * batch) * (pp - 1));
  candidate.predicted.dp = Seconds(0.05 * (dp - 1));
  return candidate;
}

std::vector<Candidate> all_candidates() {
  std::vector<Candidate> all;
  for (Int batch = 16; batch <= 512; batch *= 2) {
    for (const Configuration& at : {pipelined(batch), mixed(batch), data_parallel(batch)}) {
      all.push_back(predict(at));
    }
  }
  return all;
}

Seconds one_second(const Configuration&, const Configuration&) { return Seconds(1); }

ControllerOptions quiet_options() {
  ControllerOptions options;
  options.policy.kind = GoodputKind::kPlain;
  options.policy.horizon = Seconds(1e5);
  options.probe = 0;  // trying_layouts_test.cc tests tries
  return options;
}

// A run of `steps` steps on a machine that may differ from the prediction.
class FakeJob : public Job {
 public:
  FakeJob(Configuration start, Int steps) : at_(std::move(start)), steps_(steps) {}

  Seconds truth(const Configuration& at) const {
    const auto slow = slowdown.find(to_text({at.plan, 0}));
    return predict(at).predicted.total() * (slow == slowdown.end() ? 1 : slow->second);
  }

  bool done() const override { return step_ >= steps_; }
  Result<StepReport> step() override {
    if (step_ == fails_at_step) return make_error("rank 1 died");
    StepReport report;
    report.step = ++step_;
    samples_ += at_.global_batch;
    report.samples = samples_;
    report.time = truth(at_) * scattered(0.03);
    // |G|^2 = 1, tr(S) = the noise scale.
    for (const double batch : {1.0, static_cast<double>(at_.global_batch)}) {
      const double value = 1 + gns(step_) / batch;
      report.norms.push_back({batch, value * scattered(0.005), 1});
    }
    calls += 's';
    return report;
  }
  std::optional<Seconds> remaining() const override { return std::nullopt; }
  Result<void> observed(const StepReport& step) override {
    EXPECT_EQ(step.step, step_);
    EXPECT_EQ(controller->now(), at_);
    calls += 'o';
    return {};
  }
  bool stopping() const override { return stops && done(); }
  Result<void> settled() override {
    calls += 't';
    resumes_at.push_back(controller->resume_at());
    was_at.push_back(at_);
    return {};
  }
  Result<void> decided(const Decision& decision) override {
    decisions.push_back(decision);
    calls += 'd';
    return {};
  }
  Result<MoveReport> move(const Configuration& to) override {
    calls += 'm';
    asked.push_back(to);
    if (std::find(broken.begin(), broken.end(), to) != broken.end()) {
      return MoveReport{false, "out of memory", Seconds(3)};
    }
    at_ = to;
    return MoveReport{true, "", pause};
  }

  const Configuration& at() const { return at_; }
  Int asked_for(const Configuration& to) const {
    return std::count(asked.begin(), asked.end(), to);
  }

  std::function<double(Int)> gns = [](Int) { return 60; };
  std::map<std::string, double> slowdown;  // by the text of the plan at batch 0
  std::vector<Configuration> broken;       // a move there fails
  Seconds pause{1};
  Int fails_at_step = -1;
  bool stops = false;  // its last step is not the run's
  const Controller* controller = nullptr;

  std::string calls;
  std::vector<Decision> decisions;
  std::vector<Configuration> asked;
  std::vector<Configuration> resumes_at, was_at;  // after each step

 private:
  double scattered(double sd) { return 1 + sd * std::normal_distribution<double>()(random_); }

  Configuration at_;
  Int steps_;
  Int step_ = 0;
  Int samples_ = 0;
  std::mt19937_64 random_{5};
};

Result<void> drive(FakeJob& job, Controller& controller) {
  job.controller = &controller;
  return copus::drive(job, controller);
}

StepReport report(Int step, double seconds, double gns, double batch) {
  // A small scatter, so that the estimator has a spread to measure.
  const double scatter = step % 2 == 0 ? 1.002 : 0.998;
  StepReport report;
  report.step = step;
  report.time = Seconds(seconds);
  report.norms = {{1, (1 + gns) * scatter, 1}, {batch, 1 + gns / batch, 1}};
  return report;
}

TEST(Drive, StepsObservesDecidesMovesAndSettlesInThisOrder) {
  FakeJob job(pipelined(16), 60);
  ControllerOptions options = quiet_options();
  Controller controller(options, predict(pipelined(16)), all_candidates(), one_second);
  ASSERT_TRUE(drive(job, controller).has_value());
  std::string expected;
  std::size_t decision = 0;
  for (Int step = 1; step <= 60; ++step) {
    expected += "so";
    const bool decides = step % options.decide_every == 0 && step != 60;  // none after the end
    if (decides) expected += job.decisions.at(decision++).move ? "dm" : "d";
    expected += "t";
  }
  EXPECT_EQ(job.calls, expected);
  EXPECT_EQ(job.decisions.size(), 5U);
}

TEST(Drive, WhatIsSavedAfterADecisionIsWhereItLed) {
  FakeJob job(pipelined(16), 200);
  Controller controller(quiet_options(), predict(pipelined(16)), all_candidates(), one_second);
  ASSERT_TRUE(drive(job, controller).has_value());
  EXPECT_FALSE(job.asked.empty());
  EXPECT_EQ(job.resumes_at, job.was_at);
}

// A run that is stopped at any decision continues in the same configuration as one that is not.
TEST(Drive, WhatIsDueWhereARunStopsIsDecidedForWhoGoesOn) {
  FakeJob whole(pipelined(16), 200);
  Controller whole_controller(quiet_options(), predict(pipelined(16)), all_candidates(),
                              one_second);
  ASSERT_TRUE(drive(whole, whole_controller).has_value());
  Int moves = 0;
  for (Int steps = 10; steps < 200; steps += 10) {
    FakeJob job(pipelined(16), steps);
    job.stops = true;
    Controller controller(quiet_options(), predict(pipelined(16)), all_candidates(), one_second);
    ASSERT_TRUE(drive(job, controller).has_value());
    EXPECT_EQ(controller.resume_at(), whole.was_at.at(static_cast<std::size_t>(steps - 1)));
    if (controller.resume_at() != job.at()) ++moves;
  }
  EXPECT_EQ(moves, static_cast<Int>(whole.asked.size()));
}

TEST(Drive, ADecisionIsDueByTheNumberOfStepsAlone) {
  ControllerOptions options;
  options.decide_every = 7;
  for (Int step = 1; step <= 50; ++step) {
    EXPECT_EQ(Controller::due(options, step), step % 7 == 0);
  }
}

TEST(Drive, EndsWithTheJobsError) {
  FakeJob job(pipelined(16), 60);
  job.fails_at_step = 12;
  Controller controller(quiet_options(), predict(pipelined(16)), all_candidates(), one_second);
  EXPECT_EQ(drive(job, controller).error().message, "rank 1 died");
}

TEST(Drive, FollowsTheNoiseScaleFromLayoutToLayout) {
  FakeJob job(pipelined(16), 2000);
  job.gns = [](Int step) { return 5 + 0.5 * static_cast<double>(step); };
  Controller controller(quiet_options(), predict(pipelined(16)), all_candidates(), one_second);
  ASSERT_TRUE(drive(job, controller).has_value());
  EXPECT_EQ(job.at().plan, data_parallel(16).plan);
  EXPECT_GE(job.at().global_batch, 256);
  EXPECT_LE(job.asked.size(), 7U);  // five doublings of the batch
  for (const Decision& decision : job.decisions) EXPECT_FALSE(decision.why.empty());
}

TEST(Drive, GoesOnAfterAMoveThatFailsAndDoesNotTryItAgain) {
  FakeJob free(pipelined(16), 400);
  Controller first(quiet_options(), predict(pipelined(16)), all_candidates(), one_second);
  ASSERT_TRUE(drive(free, first).has_value());
  ASSERT_GE(free.asked.size(), 2U);

  FakeJob job(pipelined(16), 400);
  job.broken = {free.asked.front()};
  Controller controller(quiet_options(), predict(pipelined(16)), all_candidates(), one_second);
  ASSERT_TRUE(drive(job, controller).has_value());
  EXPECT_EQ(job.asked_for(free.asked.front()), 1);
  EXPECT_GE(job.asked.size(), 2U);  // another one was moved to
  EXPECT_EQ(job.at(), controller.now());
  EXPECT_NE(job.at(), pipelined(16));
}

TEST(Drive, WhereEveryMoveFailsTheRunIsRarelyInterrupted) {
  FakeJob job(pipelined(16), 200);
  for (const Candidate& candidate : all_candidates()) job.broken.push_back(candidate.at);
  ControllerOptions options = quiet_options();
  Controller controller(options, predict(pipelined(16)), all_candidates(), one_second);
  ASSERT_TRUE(drive(job, controller).has_value());
  EXPECT_EQ(job.at(), pipelined(16));
  EXPECT_GE(job.asked.size(), 2U);
  EXPECT_LE(static_cast<Int>(job.asked.size()), 200 / options.policy.dwell_steps);
}

TEST(Controller, KnowsItsGoodputOnceTheNoiseScaleIsKnown) {
  Controller controller(quiet_options(), predict(pipelined(16)), {}, one_second);
  EXPECT_EQ(controller.goodput(), std::nullopt);
  EXPECT_FALSE(controller.consider(std::nullopt).move);
  for (Int step = 1; step <= 40; ++step) controller.observe(report(step, 0.5, 60, 16));
  ASSERT_TRUE(controller.goodput().has_value());
  EXPECT_NEAR(*controller.goodput(), 16 / 0.5 / (1 + 16.0 / 120), 1.5);
  EXPECT_NEAR(controller.consider(std::nullopt).critical_batch, 120, 5);
}

TEST(Controller, DoesNotCountTheFirstStepsAfterAMove) {
  ControllerOptions options;
  options.warm_steps = 3;
  Controller warm(options, predict(pipelined(16)), all_candidates(), one_second);
  Controller cold(options, predict(pipelined(16)), all_candidates(), one_second);
  auto run = [](Controller& controller, double first) {
    Int step = 0;
    auto some = [&] {
      const auto batch = static_cast<double>(controller.now().global_batch);
      for (int i = 0; i < 6; ++i) {
        controller.observe(report(++step, i < 3 ? first : 0.5, 60, batch));
      }
    };
    some();
    Decision decision;
    decision.move = true;
    decision.to = mixed(32);
    controller.moved(decision, {true, "", Seconds(1)});
    some();
  };
  run(warm, 0.5);
  run(cold, 20);
  ASSERT_TRUE(warm.goodput().has_value());
  EXPECT_DOUBLE_EQ(*warm.goodput(), *cold.goodput());
  EXPECT_EQ(cold.now(), mixed(32));
}

// Decisions of a controller some steps after one move of state.
class AfterAMove : public testing::Test {
 protected:
  Decision decision(double measured_pause, double remaining) {
    Controller controller(quiet_options(), predict(mixed(64)), all_candidates(), one_second);
    observe(controller, 50);
    Decision first;
    first.move = true;
    first.to = pipelined(64);
    controller.moved(first, {true, "", Seconds(measured_pause)});
    observe(controller, 50);
    return controller.consider(Seconds(remaining));
  }

 private:
  // The pipeline is twice as slow as predicted, so other layouts are much faster.
  void observe(Controller& controller, Int steps) {
    const Candidate here = predict(controller.now());
    const double slow = here.at.plan.pp == 4 ? 2 : 1;
    for (Int i = 0; i < steps; ++i) {
      controller.observe(report(++step_, slow * here.predicted.total().v, 60,
                                static_cast<double>(here.at.global_batch)));
    }
  }
  Int step_ = 0;
};

TEST_F(AfterAMove, PausesAreWhatTheyWereMeasuredToBe) {
  EXPECT_TRUE(decision(1, 60).move);
  EXPECT_FALSE(same_placement(decision(1, 60).to.plan, pipelined(64).plan));
  const Decision kept = decision(100, 60);
  EXPECT_TRUE(!kept.move || same_placement(kept.to.plan, pipelined(64).plan)) << kept.why;
}

TEST(Controller, RestoredOneKnowsTheNoiseScaleToTheLastBit) {
  Controller saved(quiet_options(), predict(pipelined(16)), {}, one_second);
  for (Int step = 1; step <= 40; ++step) saved.observe(report(step, 0.5, 60, 16));
  const Result<Json> text = parse_json(saved.to_json().dump(), "state");
  ASSERT_TRUE(text.has_value());
  Controller restored(quiet_options(), predict(pipelined(16)), {}, one_second);
  ASSERT_TRUE(restored.restore(*text, "state"));
  EXPECT_EQ(restored.to_json(), saved.to_json());
  for (Int step = 41; step <= 50; ++step) {
    saved.observe(report(step, 0.5, 60, 16));
    restored.observe(report(step, 0.5, 60, 16));
    EXPECT_EQ(restored.noise()->gns, saved.noise()->gns);
  }
}

TEST(Controller, StateThatIsNoneIsRefused) {
  Controller controller(quiet_options(), predict(pipelined(16)), {}, one_second);
  const Json before = controller.to_json();
  for (const char* field : {"step_times", "refused", "elapsed_s", "probed_s", "misses"}) {
    Json damaged = before;
    damaged[field] = -1;
    EXPECT_FALSE(controller.restore(damaged, "state").has_value()) << field;
  }
  for (const char* field : {"noise", "unmeasured_samples", "measured_pauses_s"}) {
    Json damaged = before;
    damaged[field] = -1;
    EXPECT_FALSE(controller.restore(damaged, "state").has_value()) << field;
    damaged.erase(field);
    EXPECT_FALSE(controller.restore(damaged, "state").has_value()) << field;
  }
  EXPECT_EQ(controller.to_json(), before);
}

TEST(Controller, ComesBackToAStartThatIsNoCandidate) {
  const Configuration start = pipelined(48);
  Controller controller(quiet_options(), predict(start), all_candidates(), one_second);
  Decision away, back;
  away.move = back.move = true;
  away.to = pipelined(64);
  back.to = start;
  controller.moved(away, {true, "", Seconds(1)});
  EXPECT_EQ(controller.now(), pipelined(64));
  controller.moved(back, {true, "", Seconds(1)});
  EXPECT_EQ(controller.now(), start);
}

TEST(Controller, WhatFailedIsRefusedAfterARestartToo) {
  ControllerOptions options = quiet_options();
  options.machine = "1x8xA";
  Controller before(options, predict(pipelined(64)), all_candidates(), one_second);
  Decision wanted;
  wanted.move = true;
  wanted.to = mixed(64);
  before.moved(wanted, {false, "out of memory", Seconds(1)});
  for (const std::string machine : {"1x8xA", "1x8xB"}) {
    options.machine = machine;
    Controller after(options, predict(pipelined(64)), all_candidates(), one_second);
    ASSERT_TRUE(after.restore(before.to_json(), "state"));
    bool offered = false;
    Int step = 0;
    // The pipeline is three times as slow as the rest of the machine.
    for (const Configuration& at : {data_parallel(64), pipelined(64)}) {
      Decision there;
      there.move = true;
      there.to = at;
      if (after.now() != at) after.moved(there, {true, "", Seconds(1)});
      const double slow = at.plan.pp == 4 ? 3 : 1;
      for (int i = 0; i < 50; ++i) {
        after.observe(report(++step, slow * predict(at).predicted.total().v, 60, 64));
      }
    }
    for (int i = 0; i < 5; ++i) {
      const Decision decision = after.consider(std::nullopt);
      offered = offered || decision.to == mixed(64);
      if (decision.move) after.moved(decision, {true, "", Seconds(1)});
      for (int k = 0; k < 50; ++k) {
        const Candidate here = predict(after.now());
        const double slow = here.at.plan.pp == 4 ? 3 : 1;
        after.observe(report(++step, slow * here.predicted.total().v, 60,
                             static_cast<double>(here.at.global_batch)));
      }
    }
    if (machine == "1x8xA") {
      EXPECT_FALSE(offered);
      EXPECT_EQ(after.to_json().at("refused"), before.to_json().at("refused"));
    } else {
      EXPECT_TRUE(after.to_json().at("refused").empty()) << "another machine may have the memory";
    }
  }
}

TEST(Controller, StepTimesAreRestoredOnTheSameMachineAlone) {
  ControllerOptions options = quiet_options();
  options.machine = "1x8xA";
  Controller before(options, predict(pipelined(64)), all_candidates(), one_second);
  const Seconds usual = predict(pipelined(64)).predicted.total();
  for (Int step = 1; step <= 40; ++step) before.observe(report(step, 5 * usual.v, 60, 64));
  const Json saved = before.to_json();
  Controller same(options, predict(pipelined(64)), all_candidates(), one_second);
  ASSERT_TRUE(same.restore(saved, "state"));
  EXPECT_NEAR(same.start_step_time().time / usual, 5, 0.01);
  options.machine = "1x8xB";
  Controller other(options, predict(pipelined(64)), all_candidates(), one_second);
  ASSERT_TRUE(other.restore(saved, "state"));
  EXPECT_NEAR(other.start_step_time().time / usual, 1, 0.01);
}

TEST(Controller, ARunThatDecidesNothingSavesNoTimes) {
  ControllerOptions options = quiet_options();
  options.policy.adapt = Adapt::kOff;
  const auto saved = [&](double seconds) {
    Controller controller(options, predict(pipelined(16)), {}, one_second);
    for (Int step = 1; step <= 40; ++step) controller.observe(report(step, seconds, 60, 16));
    return controller.to_json();
  };
  EXPECT_EQ(saved(0.5), saved(0.7));
}

TEST(Controller, ACheckpointOfAnEarlierVersionIsRead) {
  Controller controller(quiet_options(), predict(pipelined(16)), {}, one_second);
  Json earlier = controller.to_json();
  for (const char* field :
       {"machine", "step_times", "refused", "elapsed_s", "probed_s", "misses"}) {
    earlier.erase(field);
  }
  EXPECT_TRUE(controller.restore(earlier, "state"));
}

// The layouts that promise a gain are slower than predicted, each by itself.
TEST(Drive, AMoveThatBreaksItsPromiseIsUndoneAndNotRepeatedAtThatBatch) {
  FakeJob job(pipelined(128), 1000);
  for (const Configuration& at : {mixed(128), data_parallel(128)}) {
    job.slowdown[to_text({at.plan, 0})] = 2.5;
  }
  ControllerOptions options = quiet_options();
  options.policy.batch_margin = 10;  // nothing but layouts
  options.policy.caution = 0;        // the policy believes the promise
  const std::vector<Candidate> candidates = {predict(pipelined(128)), predict(mixed(128)),
                                             predict(data_parallel(128))};
  Controller controller(options, predict(pipelined(128)), candidates, one_second);
  ASSERT_TRUE(drive(job, controller).has_value());
  EXPECT_EQ(job.at(), pipelined(128));
  EXPECT_EQ(job.asked_for(mixed(128)), 1);
  EXPECT_LE(job.asked_for(data_parallel(128)), 1);
}

TEST(Controller, TheSlowStepsAfterAMoveArePartOfItsPause) {
  const auto pause_after = [](double first_step) {
    Controller controller(quiet_options(), predict(mixed(64)), all_candidates(), one_second);
    Decision move;
    move.move = true;
    move.to = pipelined(64);
    controller.moved(move, {true, "", Seconds(1)});
    const double usual = predict(pipelined(64)).predicted.total().v;
    for (Int step = 1; step <= 40; ++step) {
      controller.observe(report(step, step == 1 ? first_step : usual, 60, 64));
    }
    controller.consider(std::nullopt);
    return controller.to_json().at("measured_pauses_s").get<double>();
  };
  const double usual = predict(pipelined(64)).predicted.total().v;
  EXPECT_NEAR(pause_after(usual), 1, 1e-6);
  EXPECT_NEAR(pause_after(usual + 4), 5, 1e-3);
}

// The other layouts are twice as slow as predicted, so every try is in vain, both ways.
TEST(Drive, TriesAreChargedBothPauses) {
  FakeJob job(pipelined(128), 3000);
  job.pause = Seconds(2);
  for (const Configuration& at : {mixed(128), data_parallel(128)}) {
    job.slowdown[to_text({at.plan, 0})] = 2;
  }
  ControllerOptions options = quiet_options();
  options.probe = 0.01;
  options.policy.batch_margin = options.policy.margin = 10;
  const std::vector<Candidate> candidates = {predict(pipelined(128)), predict(mixed(128)),
                                             predict(data_parallel(128))};
  Controller controller(options, predict(pipelined(128)), candidates,
                        [](const Configuration&, const Configuration&) { return Seconds(2); });
  ASSERT_TRUE(drive(job, controller).has_value());
  EXPECT_EQ(job.at(), pipelined(128));
  ASSERT_GE(job.asked.size(), 2U);
  EXPECT_GE(controller.to_json().at("probed_s").get<double>(),
            2.0 * static_cast<double>(job.asked.size()));
}

}  // namespace
}  // namespace copus
