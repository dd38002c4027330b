// Checkpoints that are saved with one layout and loaded with another, on another number of ranks,
// have the same state. With the same layout the run continues as if it had never stopped.
#include "copus/train/move/restore.h"

#include <gtest/gtest.h>

#include "copus/base/test_folder.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/engine/test_training.h"
#include "copus/train/move/trainer_saver.h"
#include "copus/train/state/random_plans.h"

namespace copus {
namespace {

SaverOptions saver_options(const TestFolder& run, int rank, int ranks) {
  SaverOptions options;
  options.run_dir = run.path();
  options.rank = rank;
  options.ranks = ranks;
  options.wait = Seconds(60);
  return options;
}

std::unique_ptr<Trainer> make(GroupCache& groups, const TrainerOptions& options) {
  Result<std::unique_ptr<Trainer>> made = Trainer::create(groups, options);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return std::move(made).value();
}

std::unique_ptr<Trainer> restore(GroupCache& groups, const TrainerOptions& options,
                                 const std::string& folder) {
  const Result<CheckpointReader> reader = CheckpointReader::open(folder);
  EXPECT_TRUE(reader.has_value()) << reader.error().message;
  Result<std::unique_ptr<Trainer>> made = restore_trainer(groups, options, *reader);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return std::move(made).value();
}

struct Restoration {
  int from_ranks, to_ranks;
  const char* model;
  Compute compute;
  int pairs;
};
void PrintTo(const Restoration& t, std::ostream* out) {
  *out << t.from_ranks << " to " << t.to_ranks << " ranks " << t.model
       << (t.compute == Compute::kBf16 ? " bf16" : " fp32");
}
class SavedAndLoaded : public ::testing::TestWithParam<Restoration> {};

TEST_P(SavedAndLoaded, StateIsBitEqual) {
  const Restoration trial = GetParam();
  std::mt19937 random(static_cast<unsigned>(trial.from_ranks * 17 + trial.to_ranks));
  const ModelSpec model = testing_models::model_named(trial.model);
  for (int i = 0; i < trial.pairs; ++i) {
    const ParallelPlan from = random_plan(random, model, trial.from_ranks, kSeqLen, kBatch);
    const ParallelPlan to = random_plan(random, model, trial.to_ranks, kSeqLen, kBatch);
    const TestFolder run;
    Whole before, after;
    const auto options = [&](const ParallelPlan& plan) {
      TrainerOptions o = options_for(trial.model, plan);
      o.compute = trial.compute;
      return o;
    };
    run_ranks(trial.from_ranks, [&](int rank, GroupCache& groups) {
      const Dataset data = open_builtin();
      const std::unique_ptr<Trainer> trainer = make(groups, options(from));
      std::int64_t consumed = 0;
      train(*trainer, data, consumed, 2);
      before.add(*trainer);
      TrainerSaver saver(saver_options(run, rank, trial.from_ranks));
      saver.save(*trainer, manifest_of(*trainer, 2, consumed, Json::object()));
      const std::optional<SaveOutcome> saved = saver.wait();
      ASSERT_EQ(saved->error, "");
    });
    ASSERT_TRUE(verify(checkpoint_folder(run.path(), 2)).has_value()) << short_name(from);
    run_ranks(trial.to_ranks, [&](int, GroupCache& groups) {
      const std::unique_ptr<Trainer> trainer =
          restore(groups, options(to), checkpoint_folder(run.path(), 2));
      after.add(*trainer);
      EXPECT_EQ(trainer->updates(), 2);
    });
    expect_same(before, after, short_name(from) + " -> " + short_name(to));
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, SavedAndLoaded,
                         ::testing::Values(Restoration{1, 4, "llama", Compute::kFp32, 3},
                                           Restoration{4, 2, "tied", Compute::kFp32, 6},
                                           Restoration{4, 6, "gpt2", Compute::kFp32, 6},
                                           Restoration{8, 4, "llama", Compute::kFp32, 6},
                                           Restoration{4, 8, "tied", Compute::kBf16, 6},
                                           Restoration{6, 2, "gpt2", Compute::kBf16, 4}));

// A save writes a copy: the run continues at once, and the checkpoint has the state from before.
TEST(Resume, AtTheSameLayoutIsBitEqualToNeverHavingStopped) {
  for (const char* text : {"dp=2,pp=2,zero=1,micro_batch=2", "tp=2,dp=2,sp=1,micro_batch=4",
                           "tp=4,micro_batch=2", "pp=2,vp=2,dp=2,micro_batch=1"}) {
    const TestFolder run;
    std::vector<double> straight, resumed;
    std::vector<std::vector<Tensor>> state(4);
    const TrainerOptions options = options_for("tied", plan_of(text));
    run_ranks(4, [&](int rank, GroupCache& groups) {
      const Dataset data = open_builtin();
      const std::unique_ptr<Trainer> trainer = make(groups, options);
      std::int64_t consumed = 0;
      train(*trainer, data, consumed, 3);
      TrainerSaver saver(saver_options(run, rank, 4));
      saver.save(*trainer, manifest_of(*trainer, 3, consumed, Json::object()));
      std::vector<double> losses;
      train(*trainer, data, consumed, 3, &losses);
      ASSERT_EQ(saver.wait()->error, "");
      state[static_cast<std::size_t>(rank)] = state_of(*trainer);
      if (rank == 0) straight = losses;
    });
    run_ranks(4, [&](int rank, GroupCache& groups) {
      const Dataset data = open_builtin();
      const std::unique_ptr<Trainer> trainer =
          restore(groups, options, checkpoint_folder(run.path(), 3));
      std::int64_t consumed = 3 * kBatch;
      std::vector<double> losses;
      train(*trainer, data, consumed, 3, &losses);
      EXPECT_TRUE(equal(state[static_cast<std::size_t>(rank)], state_of(*trainer)))
          << text << " rank " << rank;
      if (rank == 0) resumed = losses;
    });
    EXPECT_EQ(straight, resumed) << text;
  }
}

TEST(Resume, OfAnotherModelIsRefused) {
  const TestFolder run;
  run_ranks(1, [&](int, GroupCache& groups) {
    const std::unique_ptr<Trainer> trainer = make(groups, options_for("llama", ParallelPlan()));
    TrainerSaver saver(saver_options(run, 0, 1));
    saver.save(*trainer, manifest_of(*trainer, 0, 0, Json::object()));
    ASSERT_EQ(saver.wait()->error, "");
    const Result<CheckpointReader> reader =
        CheckpointReader::open(checkpoint_folder(run.path(), 0));
    ASSERT_TRUE(reader.has_value()) << reader.error().message;
    TrainerOptions other = options_for("llama", ParallelPlan());
    other.model.ffn += 8;
    const auto restored = restore_trainer(groups, other, *reader);
    ASSERT_FALSE(restored.has_value());
    EXPECT_TRUE(
        contains(restored.error().message, "--model: got one with layers.0.mlp.gate.weight"))
        << restored.error().message;
  });
}

}  // namespace
}  // namespace copus
