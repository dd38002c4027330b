#include "copus/train/run/announce.h"

#include <gtest/gtest.h>

#include <functional>

#include "copus/base/test_folder.h"
#include "copus/train/engine/test_training.h"

namespace copus {
namespace {

// The first event of a run of one rank, and the lines that it has printed.
struct Begun {
  Event event;
  std::string lines;
};

Begun begin(const std::function<void(RunOptions&, RunStart&)>& change) {
  Begun begun;
  run_ranks(1, [&](int, GroupCache& groups) {
    RunOptions options;
    options.trainer = options_for("llama", plan_of("micro_batch=4"));
    RunStart start;
    change(options, start);
    start.trainer = Trainer::create(groups, options.trainer).value();
    const Dataset data = open_builtin();
    const TestFolder folder;
    std::FILE* out = std::fopen(folder.path("out").c_str(), "w");
    ASSERT_NE(out, nullptr);
    Progress progress(out);
    EventStream events;
    events.subscribe(progress);
    const RunLog log(events, &progress);
    introduce(log, options, start, data);
    begun.event = begin_event(options, start, data);
    EXPECT_TRUE(log.write(begun.event).has_value());
    std::fclose(out);
    begun.lines = folder.read("out");
  });
  return begun;
}

TEST(Announce, ARunThatBeginsSaysWhatItTrainsAndHow) {
  const Begun begun = begin([](RunOptions& options, RunStart&) {
    options.trainer.compute = Compute::kBf16;
    options.adapt.controller.policy.adapt = Adapt::kBatch;
    options.peak = teraflops(2);
  });
  const auto& start = std::get<StartEvent>(begun.event);
  EXPECT_EQ(start.model, "llama-test");
  EXPECT_GT(start.parameters, 0);
  EXPECT_EQ(start.plan, plan_of("micro_batch=4"));
  EXPECT_EQ(start.ranks, 1);
  EXPECT_EQ(start.device, DeviceKind::kCpu);
  EXPECT_EQ(start.precision, Precision::kBf16);
  EXPECT_EQ(start.seq_len, kSeqLen);
  EXPECT_EQ(start.global_batch, kBatch);
  EXPECT_EQ(start.data_tokens, open_builtin().tokens());
  EXPECT_EQ(start.peak, teraflops(2));
  EXPECT_EQ(start.adapt, Adapt::kBatch);
  EXPECT_TRUE(begun.lines.starts_with("llama-test (")) << begun.lines;
  EXPECT_TRUE(contains(begun.lines, ", 1 rank, dp1.tp1.pp1.mb4, ")) << begun.lines;
}

TEST(Announce, ARunThatGoesOnSaysWhere) {
  const Begun begun = begin([](RunOptions& options, RunStart& start) {
    options.checkpoint.why = "a test";
    options.changed = {{"lr", "1", "2"}};
    start.resumed = true;
    start.step = 7;
    start.samples = 112;
    start.from = "run/checkpoints/step-7";
    start.skipped = "run/checkpoints/step-8: torn";
  });
  const auto& restart = std::get<RestartEvent>(begun.event);
  EXPECT_EQ(restart.step, 7);
  EXPECT_EQ(restart.samples, 112);
  EXPECT_EQ(restart.from, "run/checkpoints/step-7");
  EXPECT_EQ(restart.plan, plan_of("micro_batch=4"));
  EXPECT_EQ(restart.global_batch, kBatch);
  EXPECT_EQ(restart.ranks, 1);
  EXPECT_EQ(restart.why, "a test");
  EXPECT_EQ(restart.skipped, "run/checkpoints/step-8: torn");
  EXPECT_EQ(restart.options.size(), 1U);
  EXPECT_TRUE(
      begun.lines.ends_with("\ngoing on from run/checkpoints/step-7: step 7, 112 samples\n"))
      << begun.lines;
}

TEST(Announce, WhatTheModelsConfigAsksForInVainIsSaid) {
  const Begun begun = begin([](RunOptions& options, RunStart&) {
    options.trainer.model.dropout = true;
    options.trainer.model.max_positions = kSeqLen / 2;
  });
  EXPECT_TRUE(contains(begun.lines, "asks for dropout: it is not applied\n")) << begun.lines;
  EXPECT_TRUE(contains(begun.lines, "sequences of 16 are longer than the 8 positions"))
      << begun.lines;
}

TEST(Announce, ARunThatAdaptsSaysBetweenWhat) {
  const Begun begun = begin([](RunOptions& options, RunStart& start) {
    options.adapt.controller.policy.adapt = Adapt::kFull;
    options.adapt.lowest_batch = 8;
    options.adapt.highest_batch = 64;
    start.adaptation.emplace().candidates.resize(3);
  });
  EXPECT_TRUE(
      contains(begun.lines, "adapting batch and layout: 3 configurations, batches 8 to 64\n"))
      << begun.lines;
}

}  // namespace
}  // namespace copus
