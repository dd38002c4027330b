// Whole runs with a thread per rank: what they reach, the events they write, and how they resume.
#include "copus/train/run/run.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "copus/base/test_folder.h"
#include "copus/events/event_log.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/run_state.h"
#include "copus/train/engine/test_training.h"
#include "copus/train/run/start.h"

namespace copus {
namespace {

constexpr int kRanks = 2;

RunOptions run_in(const TestFolder& folder, const std::string& plan = "dp=2,micro_batch=4") {
  RunOptions options;
  options.trainer = options_for("llama", plan_of(plan));
  options.trainer.ranks_per_node = kRanks;
  options.run_dir = folder.path();
  options.adapt.controller.policy.adapt = Adapt::kOff;
  options.steps = 3;
  options.checkpoint.wait = Seconds(30);
  options.checkpoint.version = "test";
  options.config = "steps = 3\n";
  return options;
}

RunOptions going_on(RunOptions options) {
  options.checkpoint.resume = true;
  options.checkpoint.why = "a test";
  return options;
}

struct Ended {
  std::array<RunOutcome, kRanks> of;  // by rank
  std::string refused;                // the error on rank 0; empty: the run began
};

// Runs all ranks. `asked`: the rank that is asked to stop before it begins; -1: none.
Ended run_all(const RunOptions& options, int asked = -1) {
  Ended ended;
  run_ranks(kRanks, [&](int rank, GroupCache& groups) {
    const std::atomic<bool> stop = rank == asked;
    Result<RunOutcome> outcome = run_training(groups, options, nullptr, stop);
    if (outcome) {
      ended.of[static_cast<std::size_t>(rank)] = std::move(outcome).value();
    } else if (rank == 0) {
      ended.refused = outcome.error().message;
    }
  });
  return ended;
}

std::vector<Event> events_of(const TestFolder& folder) {
  std::vector<Event> events;
  const Result<void> read =
      read_events(events_path(folder.path()), [&](const TimedEvent& event, const std::string&) {
        events.push_back(event.event);
        return Result<void>();
      });
  EXPECT_TRUE(read.has_value()) << read.error().message;
  return events;
}

template <typename T>
std::vector<T> only(const std::vector<Event>& events) {
  std::vector<T> some;
  for (const Event& event : events) {
    if (const T* one = std::get_if<T>(&event)) some.push_back(*one);
  }
  return some;
}

TEST(Run, EndsAtItsStepsAndSaysAllThatItDid) {
  const TestFolder folder;
  const Ended ended = run_all(run_in(folder));
  ASSERT_EQ(ended.refused, "");
  for (const RunOutcome& outcome : ended.of) {
    EXPECT_EQ(outcome.reason, EndReason::kSteps);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.steps, 3);
    EXPECT_EQ(outcome.samples, 3 * kBatch);
    EXPECT_GT(outcome.tokens_per_s, 0);
    EXPECT_TRUE(outcome.saved);
  }
  EXPECT_EQ(ended.of[0].loss, ended.of[1].loss);

  const std::vector<Event> events = events_of(folder);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(std::get<StartEvent>(events[0]).ranks, kRanks);
  for (int i = 1; i <= 3; ++i) {
    const auto& step = std::get<StepEvent>(events[static_cast<std::size_t>(i)]);
    EXPECT_EQ(step.step, i);
    EXPECT_EQ(step.samples, i * kBatch);
    EXPECT_EQ(step.tokens, i * kBatch * kSeqLen);
  }
  EXPECT_EQ(std::get<CheckpointEvent>(events[4]).step, 3);
  const auto& end = std::get<EndEvent>(events[5]);
  EXPECT_EQ(end.reason, EndReason::kSteps);
  EXPECT_EQ(end.loss, std::get<StepEvent>(events[3]).loss);
  EXPECT_EQ(folder.read("config.toml"), "steps = 3\n");
}

TEST(Run, GoesOnAsIfItHadNeverStopped) {
  const TestFolder whole_folder, parts_folder;
  RunOptions options = run_in(whole_folder);
  options.steps = 5;
  ASSERT_EQ(run_all(options).refused, "");
  ASSERT_EQ(run_all(run_in(parts_folder)).refused, "");
  RunOptions rest = going_on(run_in(parts_folder, "pp=2,micro_batch=4"));  // at another layout
  rest.steps = 5;
  rest.checkpoint.plan_given = true;
  const Ended ended = run_all(rest);
  ASSERT_EQ(ended.refused, "");
  EXPECT_EQ(ended.of[0].steps, 5);

  const auto whole = only<StepEvent>(events_of(whole_folder));
  const auto parts = only<StepEvent>(events_of(parts_folder));
  ASSERT_EQ(whole.size(), 5U);
  ASSERT_EQ(parts.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(parts[i].samples, whole[i].samples);
    EXPECT_EQ(parts[i].tokens, whole[i].tokens);
    EXPECT_EQ(parts[i].data_hash, whole[i].data_hash) << "the runs must read the same samples";
    EXPECT_EQ(parts[i].lr, whole[i].lr);
    EXPECT_NEAR(parts[i].loss, whole[i].loss, 1e-4);
  }
  const auto restarts = only<RestartEvent>(events_of(parts_folder));
  ASSERT_EQ(restarts.size(), 1U);
  EXPECT_EQ(restarts[0].step, 3);
  EXPECT_EQ(restarts[0].from, checkpoint_folder(parts_folder.path(), 3));
  EXPECT_EQ(restarts[0].why, "a test");
}

TEST(Run, ThatWasOverStaysSo) {
  const TestFolder folder;
  ASSERT_EQ(run_all(run_in(folder)).refused, "");
  const std::size_t before = events_of(folder).size();
  const Ended ended = run_all(going_on(run_in(folder)));
  ASSERT_EQ(ended.refused, "");
  EXPECT_EQ(ended.of[0].reason, EndReason::kSteps);
  EXPECT_EQ(ended.of[0].steps, 3);
  EXPECT_EQ(ended.of[0].tokens_per_s, 0);
  const std::vector<Event> events = events_of(folder);
  ASSERT_EQ(events.size(), before + 2) << "want only a restart and an end event, and no step";
  EXPECT_EQ(std::get<EndEvent>(events.back()).step, 3);

  // A run whose --until-loss is the loss of its last step is over too.
  RunOptions until = going_on(run_in(folder));
  until.steps.reset();
  until.until_loss = ended.of[0].loss.value() + 1e-9;
  const Ended again = run_all(until);
  EXPECT_EQ(again.of[0].reason, EndReason::kLoss);
  EXPECT_EQ(again.of[0].steps, 3);
}

TEST(Run, OneThatHasNoCheckpointYetBeginsAnew) {
  const TestFolder folder;
  const Ended ended = run_all(going_on(run_in(folder)));
  ASSERT_EQ(ended.refused, "");
  EXPECT_EQ(ended.of[0].steps, 3);
  const auto restarts = only<RestartEvent>(events_of(folder));
  ASSERT_EQ(restarts.size(), 1U);
  EXPECT_EQ(restarts[0].step, 0);
  EXPECT_EQ(restarts[0].from, "");
}

TEST(Run, AskedOnOneRankEndsOnAllAfterTheSameStep) {
  for (int rank = 0; rank < kRanks; ++rank) {
    const TestFolder folder;
    const Ended ended = run_all(run_in(folder), rank);
    ASSERT_EQ(ended.refused, "");
    for (const RunOutcome& outcome : ended.of) {
      EXPECT_EQ(outcome.reason, EndReason::kSignal);
      EXPECT_EQ(outcome.steps, 1);
      EXPECT_TRUE(outcome.saved);
    }
  }
}

// Changes the run's state in the manifest of a checkpoint.
void change_run_state(const TestFolder& folder, std::int64_t step,
                      const std::function<void(Json&)>& change) {
  const std::string checkpoint = checkpoint_folder(folder.path(), step);
  Result<Manifest> manifest = read_manifest(checkpoint);
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message;
  change(manifest->run);
  std::ofstream(checkpoint + "/" + kManifestName) << print_manifest(*manifest);
}

// After a failure before the first step, the `end` event has the step and samples of the checkpoint
// and no negative rate.
TEST(Run, ThatFailsBeforeItsFirstStepEndsWhereItWas) {
  const TestFolder folder;
  ASSERT_EQ(run_all(run_in(folder)).refused, "");
  change_run_state(folder, 3, [](Json& run) { run["controller"]["noise"] = "nonsense"; });
  RunOptions rest = going_on(run_in(folder));
  rest.steps = 5;
  RunOutcome outcome;
  run_ranks(1, [&](int, GroupCache& groups) {
    rest.trainer.plan = plan_of("micro_batch=4");
    rest.trainer.ranks_per_node = 1;
    rest.checkpoint.plan_given = true;
    Result<RunOutcome> ran = run_training(groups, rest, nullptr, false);
    ASSERT_TRUE(ran.has_value()) << ran.error().message;
    outcome = std::move(ran).value();
  });
  EXPECT_EQ(outcome.reason, EndReason::kFailed);
  EXPECT_TRUE(contains(outcome.error, "controller: noise")) << outcome.error;
  const auto end = std::get<EndEvent>(events_of(folder).back());
  EXPECT_EQ(end.reason, EndReason::kFailed);
  EXPECT_EQ(end.step, 3);
  EXPECT_EQ(end.samples, 3 * kBatch);
  EXPECT_EQ(end.tokens_per_s, 0);
  EXPECT_TRUE(end.loss.has_value());
}

// An error that only rank 0 finds ends the other ranks too, before their time limit.
TEST(Run, AControllerThatCannotBeRestoredEndsAllRanks) {
  const TestFolder folder;
  ASSERT_EQ(run_all(run_in(folder)).refused, "");
  change_run_state(folder, 3, [](Json& run) { run["controller"]["noise"] = "nonsense"; });
  RunOptions rest = going_on(run_in(folder));
  rest.steps = 5;
  const Ended ended = run_all(rest);
  ASSERT_EQ(ended.refused, "");
  for (const RunOutcome& outcome : ended.of) {
    EXPECT_EQ(outcome.reason, EndReason::kFailed);
    EXPECT_TRUE(contains(outcome.error, "controller: noise")) << outcome.error;
  }
  EXPECT_TRUE(ended.of[1].error.starts_with("rank 0: ")) << ended.of[1].error;
  EXPECT_EQ(only<EndEvent>(events_of(folder)).back().reason, EndReason::kFailed);
}

TEST(Run, AConfigThatCannotBeWrittenIsAnErrorOfAllRanks) {
  const TestFolder folder;
  std::filesystem::create_directories(folder.path("config.toml/in the way"));
  std::array<std::string, kRanks> refused;
  run_ranks(kRanks, [&](int rank, GroupCache& groups) {
    const Result<RunOutcome> outcome = run_training(groups, run_in(folder), nullptr, false);
    ASSERT_FALSE(outcome.has_value()) << outcome->error;
    refused[static_cast<std::size_t>(rank)] = outcome.error().message;
  });
  EXPECT_TRUE(contains(refused[0], "config.toml")) << refused[0];
  EXPECT_EQ(refused[1], "rank 0: " + refused[0]);
}

// Rank 1 refuses its options and leaves. Rank 0 has entered the run directory and cannot continue.
TEST(Run, WhatThrowsBeforeItsFirstStepHasAnEndEvent) {
  const TestFolder folder;
  ASSERT_EQ(run_all(run_in(folder)).refused, "");
  RunOutcome outcome;
  run_ranks(
      kRanks,
      [&](int rank, GroupCache& groups) {
        RunOptions rest = going_on(run_in(folder));
        if (rank == 1) rest.config = "steps = 4\n";
        Result<RunOutcome> ran = run_training(groups, rest, nullptr, false);
        EXPECT_EQ(ran.has_value(), rank == 0);
        if (ran) outcome = std::move(ran).value();
      },
      std::chrono::seconds(3));
  EXPECT_EQ(outcome.reason, EndReason::kFailed);
  EXPECT_TRUE(contains(outcome.error, "rank 1")) << outcome.error;
  const std::vector<Event> events = events_of(folder);
  ASSERT_TRUE(std::holds_alternative<EndEvent>(events.back()));
  EXPECT_EQ(std::get<EndEvent>(events.back()).reason, EndReason::kFailed);
  const EndEvent& end = std::get<EndEvent>(events.back());
  EXPECT_EQ(end.error, outcome.error);
  const EndEvent reached = only<EndEvent>(events).front();  // of the first run
  EXPECT_EQ(end.step, reached.step);
  EXPECT_GT(end.step, 0);
  EXPECT_EQ(end.samples, reached.samples);
  EXPECT_EQ(end.loss, reached.loss);
  EXPECT_EQ(outcome.tokens_per_s, 0);
}

TEST(Run, GoesOnFromTheCheckpointBeforeOneThatIsDamaged) {
  const TestFolder folder;
  RunOptions options = run_in(folder);
  options.checkpoint.every = 2;
  ASSERT_EQ(run_all(options).refused, "");
  const std::string newest = checkpoint_folder(folder.path(), 3);
  const Result<Manifest> manifest = read_manifest(newest);
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message;
  std::filesystem::resize_file(newest + "/" + manifest->files.at(0).name, 100);

  RunOptions rest = going_on(options);
  rest.steps = 4;
  const Ended ended = run_all(rest);
  ASSERT_EQ(ended.refused, "");
  EXPECT_EQ(ended.of[0].steps, 4);
  const auto restarts = only<RestartEvent>(events_of(folder));
  ASSERT_EQ(restarts.size(), 1U);
  EXPECT_EQ(restarts[0].step, 2);
  EXPECT_EQ(restarts[0].from, checkpoint_folder(folder.path(), 2));
  EXPECT_TRUE(contains(restarts[0].skipped, "step-3")) << restarts[0].skipped;
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoints/damaged-step-3"));
}

TEST(Run, WhoseTimeIsOverEndsOnAllRanksAndSaysSo) {
  const TestFolder folder;
  RunOptions options = run_in(folder);
  options.steps.reset();
  options.for_time = Seconds(0.2);
  const Ended ended = run_all(options);
  ASSERT_EQ(ended.refused, "");
  for (const RunOutcome& outcome : ended.of) {
    EXPECT_EQ(outcome.reason, EndReason::kTime);
    EXPECT_EQ(outcome.steps, ended.of[0].steps);
    EXPECT_TRUE(outcome.saved);
  }
}

// Every gradient norm above the median is a spike here, so the run goes back to its checkpoint.
TEST(Run, GoesBackToItsCheckpointAtABadStepAndLeavesTheSamplesOut) {
  const TestFolder folder;
  RunOptions options = run_in(folder);
  options.steps = 45;
  options.checkpoint.every = 10;
  options.bad_steps.action = OnBadStep::kRollback;
  options.bad_steps.norm_spike = 1;  // times the median: about every second step is a spike
  options.bad_steps.most_rollbacks = 2;
  const Ended ended = run_all(options);
  ASSERT_EQ(ended.refused, "");
  const std::vector<Event> events = events_of(folder);
  const auto bad = only<BadStepEvent>(events);
  ASSERT_EQ(bad.size(), 3U) << "want two rollbacks, and a stop at the third bad step";
  EXPECT_EQ(bad[0].action, OnBadStep::kRollback);
  EXPECT_EQ(bad[0].from, checkpoint_folder(folder.path(), 30));
  EXPECT_EQ(bad[0].samples, bad[0].step * kBatch) << "its samples count as consumed";
  EXPECT_EQ(bad[2].action, OnBadStep::kStop);
  for (const RunOutcome& outcome : ended.of) EXPECT_EQ(outcome.reason, EndReason::kSpike);
  EXPECT_TRUE(contains(ended.of[0].error, "--max-rollbacks")) << ended.of[0].error;
}

TEST(Run, OtherDataThanTheCheckpointsIsRefusedUnlessMeant) {
  const TestFolder folder;
  ASSERT_EQ(run_all(run_in(folder)).refused, "");
  RunOptions rest = going_on(run_in(folder));
  rest.steps = 5;
  rest.trainer.seed = 2;
  EXPECT_TRUE(contains(run_all(rest).refused, "--seed: got 2; want 1")) << run_all(rest).refused;
  rest.checkpoint.other_data = true;
  EXPECT_EQ(run_all(rest).of[0].steps, 5);
}

TEST(Run, RanksWithOtherOptionsDoNotTrain) {
  const TestFolder folder;
  std::array<std::string, kRanks> refused;
  run_ranks(
      kRanks,
      [&](int rank, GroupCache& groups) {
        RunOptions options = run_in(folder);
        if (rank == 1) {
          options.config = "steps = 4\n";
          const Result<RunOutcome> outcome = run_training(groups, options, nullptr, false);
          ASSERT_FALSE(outcome.has_value());
          refused[1] = outcome.error().message;
          return;
        }
        // Rank 0 waits for the other rank, which does not come.
        try {
          const Result<RunOutcome> outcome = run_training(groups, options, nullptr, false);
          if (outcome) refused[0] = outcome->error;
        } catch (const CommError& error) {
          refused[0] = error.what();
        }
      },
      std::chrono::seconds(3));
  EXPECT_EQ(refused[1], "rank 1: got steps = 4; want steps = 3, as rank 0 has it");
  EXPECT_NE(refused[0], "");
}

// Rank 0 decides and tells rank 1: the batch changes on both, and no sample is skipped.
TEST(Run, ThatAdaptsItsBatchDoesSoOnAllRanks) {
  const TestFolder folder;
  RunOptions options = run_in(folder, "dp=2,micro_batch=2");
  options.steps = 40;
  options.trainer.noise_every = 1;
  ControllerOptions& controller = options.adapt.controller;
  controller.policy.adapt = Adapt::kTrack;
  controller.policy.calibration = 50;  // so that the critical batch is far above the first batch
  controller.policy.dwell_steps = 2;
  controller.policy.noise_caution = 0;
  controller.decide_every = 4;
  options.adapt.lowest_batch = kBatch;
  options.adapt.highest_batch = 4 * kBatch;
  options.adapt.spaces = {parse_plan_text("cp=1,ep=1", "--fix").value()};
  const Ended ended = run_all(options);
  ASSERT_EQ(ended.refused, "");
  EXPECT_EQ(ended.of[0].error, "");
  EXPECT_GT(ended.of[0].moves, 0);
  EXPECT_EQ(ended.of[0].moves, ended.of[1].moves);
  EXPECT_EQ(ended.of[0].samples, ended.of[1].samples);
  EXPECT_NE(ended.of[0].summary, "");

  const std::vector<Event> events = events_of(folder);
  std::int64_t samples = 0, batch = kBatch, largest = 0;
  for (const Event& event : events) {
    if (const auto* step = std::get_if<StepEvent>(&event)) {
      samples += step->global_batch;
      EXPECT_EQ(step->samples, samples);
      EXPECT_EQ(step->global_batch, batch);
    }
    if (const auto* move = std::get_if<ReconfigureEvent>(&event)) {
      EXPECT_EQ(move->global_batch_from, batch);
      if (move->done) batch = move->global_batch_to;
      largest = std::max(largest, batch);
    }
  }
  EXPECT_GT(largest, kBatch);
  const Result<Manifest> saved = read_manifest(checkpoint_folder(folder.path(), 40));
  ASSERT_TRUE(saved.has_value()) << saved.error().message;
  const Result<RunState> state = run_state_from_json(saved->run, "manifest: run");
  ASSERT_TRUE(state.has_value()) << state.error().message;
  EXPECT_FALSE(state->controller.is_null());
  EXPECT_EQ(state->tokens, samples * kSeqLen);
}

}  // namespace
}  // namespace copus
