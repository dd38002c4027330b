// Moves of live runs: the state stays the same, training continues as if it had always had the new
// layout, no sample is lost, and after a failed move the run continues with its old layout.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "copus/train/engine/adamw.h"
#include "copus/train/engine/test_training.h"
#include "copus/train/move/move.h"
#include "copus/train/state/random_plans.h"

namespace copus {
namespace {

struct Trial {
  int ranks;
  const char* model;
  Compute compute;
  int pairs;
};
void PrintTo(const Trial& t, std::ostream* out) {
  *out << t.ranks << " ranks " << t.model << (t.compute == Compute::kBf16 ? " bf16" : " fp32");
}
// Trains a step, then moves from one random layout to another, back, and there again, each time in
// another way. Repeats this with the next layout.
class RandomPairs : public ::testing::TestWithParam<Trial> {};

// Options of the i-th move. They differ in the size of messages, and in which state moves by
// reading memory: all of it, none, or some.
ReshardOptions way(std::size_t i, int self) {
  ReshardOptions how;
  how.message_bytes = i % 2 == 0 ? 3000 : 8 << 20;  // several messages, or one
  if (i % 3 == 1) how.may_read = [](int) { return false; };
  if (i % 3 == 2) how.may_read = [self](int rank) { return (self + 2 * rank) % 3 != 0; };
  return how;
}

TEST_P(RandomPairs, StateIsBitEqual) {
  const Trial trial = GetParam();
  const std::string name = trial.model + std::to_string(trial.ranks);
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937 random(seed);
  const ModelSpec model = testing_models::model_named(trial.model);
  std::vector<ParallelPlan> plans;
  for (int i = 0; i <= trial.pairs; ++i) {
    plans.push_back(random_plan(random, model, trial.ranks, kSeqLen, kBatch));
  }
  std::vector<Whole> before(plans.size()), after(plans.size());
  run_ranks(trial.ranks, [&](int rank, GroupCache& groups) {
    const Dataset data = open_builtin();
    TrainerOptions options = options_for(trial.model, plans[0]);
    options.compute = trial.compute;
    Result<std::unique_ptr<Trainer>> made = Trainer::create(groups, options);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Trainer& trainer = **made;
    std::int64_t consumed = 0;
    for (std::size_t i = 1; i < plans.size(); ++i) {
      train(trainer, data, consumed, 1);
      const std::vector<Tensor> old = state_of(trainer);
      before[i].add(trainer);
      const MoveResult there =
          move_run(trainer, groups, {plans[i], kBatch}, {.reshard = way(i, rank)});
      ASSERT_TRUE(there.done) << there.error;
      after[i].add(trainer);
      const std::vector<Tensor> state = state_of(trainer);
      const MoveResult back =
          move_run(trainer, groups, {plans[i - 1], kBatch}, {.reshard = way(i + 1, rank)});
      ASSERT_TRUE(back.done) << back.error;
      EXPECT_TRUE(equal(old, state_of(trainer)))
          << short_name(plans[i - 1]) << " -> " << short_name(plans[i]) << " -> back";
      ASSERT_TRUE(
          move_run(trainer, groups, {plans[i], kBatch}, {.reshard = way(i + 2, rank)}).done);
      EXPECT_TRUE(equal(state, state_of(trainer))) << short_name(plans[i]) << ", two ways";
    }
  });
  for (std::size_t i = 1; i < plans.size(); ++i) {
    expect_same(before[i], after[i], short_name(plans[i - 1]) + " -> " + short_name(plans[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reshard, RandomPairs,
    ::testing::Values(Trial{2, "llama", Compute::kFp32, 50}, Trial{4, "tied", Compute::kFp32, 75},
                      Trial{6, "gpt2", Compute::kFp32, 30}, Trial{8, "llama", Compute::kFp32, 25},
                      Trial{8, "tied", Compute::kFp32, 15}, Trial{8, "qwen3", Compute::kBf16, 5},
                      Trial{4, "gpt2", Compute::kBf16, 8}));

TEST(Move, TrainsOnAsIfAlwaysThere) {
  const std::vector<std::pair<const char*, const char*>> moves = {
      {"dp=4,micro_batch=2", "pp=4,micro_batch=2"},
      {"pp=4,micro_batch=1", "dp=4,zero=1,micro_batch=4"},
      {"tp=4,sp=1,micro_batch=4", "dp=2,pp=2,micro_batch=2"},
      {"dp=2,pp=2,zero=1,micro_batch=2", "tp=2,pp=2,vp=2,schedule=interleaved,micro_batch=2"}};
  for (const auto& [from, to] : moves) {
    std::vector<double> moved, always;
    const auto run = [&](const char* first, std::vector<double>& losses) {
      run_ranks(4, [&](int rank, GroupCache& groups) {
        const Dataset data = open_builtin();
        auto made = Trainer::create(groups, options_for("tied", plan_of(first)));
        ASSERT_TRUE(made.has_value()) << made.error().message;
        std::int64_t consumed = 0;
        std::vector<double> mine;
        train(**made, data, consumed, 6, &mine);
        if (std::string(first) != to) {
          const MoveResult move = move_run(**made, groups, {plan_of(to), kBatch});
          ASSERT_TRUE(move.done) << move.error;
        }
        train(**made, data, consumed, 10, &mine);
        if (rank == 0) losses = mine;
      });
    };
    run(from, moved);
    run(to, always);
    ASSERT_EQ(moved.size(), always.size());
    for (std::size_t i = 0; i < moved.size(); ++i) {
      EXPECT_NEAR(moved[i] / always[i], 1, 1e-4) << from << " -> " << to << " step " << i;
    }
  }
}

TEST(Move, LosesAndRepeatsNoSampleOverTwentyMoves) {
  std::mt19937 random(20);
  const ModelSpec model = testing_models::model_named("llama");
  std::vector<Configuration> stops;
  const std::int64_t batches[] = {8, 16, 32, 24};
  for (int i = 0; i <= 20; ++i) {
    const std::int64_t batch = batches[i % 4];
    stops.push_back({random_plan(random, model, 4, kSeqLen, batch), batch});
  }
  std::uint64_t read = 0;
  std::int64_t consumed = 0;
  run_ranks(4, [&](int rank, GroupCache& groups) {
    const Dataset data = open_builtin();
    TrainerOptions options = options_for("llama", stops[0].plan);
    options.global_batch = stops[0].global_batch;
    auto made = Trainer::create(groups, options);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    std::int64_t mine = 0;
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (i > 0) {
        const MoveResult move = move_run(**made, groups, stops[i]);
        ASSERT_TRUE(move.done) << move.error;
      }
      train(**made, data, mine, 2, nullptr, &hash);
    }
    if (rank == 0) {
      read = hash;
      consumed = mine;
    }
  });
  // The same samples, read one after another by one rank that never moves.
  std::uint64_t expected = 0;
  run_ranks(1, [&](int, GroupCache& groups) {
    const Dataset data = open_builtin();
    TrainerOptions options = options_for("llama", ParallelPlan());
    options.global_batch = 1;
    auto made = Trainer::create(groups, options);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    std::int64_t mine = 0;
    train(**made, data, mine, static_cast<int>(consumed), nullptr, &expected);
  });
  EXPECT_GT(consumed, 500);
  EXPECT_EQ(read, expected);
}

TEST(Move, FailedBeforeTheCommitLeavesTheRunWhereItWas) {
  for (const MovePhase where : {MovePhase::kAllocate, MovePhase::kTransfer}) {
    std::vector<double> disturbed, undisturbed;
    for (const bool disturb : {true, false}) {
      run_ranks(4, [&](int rank, GroupCache& groups) {
        const Dataset data = open_builtin();
        auto made = Trainer::create(groups, options_for("tied", plan_of("dp=2,pp=2,zero=1")));
        ASSERT_TRUE(made.has_value()) << made.error().message;
        std::int64_t consumed = 0;
        std::vector<double> losses;
        train(**made, data, consumed, 3, &losses);
        if (disturb) {
          MoveOptions how;
          if (rank == 2) {
            how.hook = [&](MovePhase phase) {
              if (phase == where) throw std::runtime_error("out of memory, say");
            };
          }
          const MoveResult move =
              move_run(**made, groups, {plan_of("tp=4,micro_batch=2"), kBatch}, how);
          EXPECT_FALSE(move.done);
          EXPECT_EQ(move.error, "rank 2: out of memory, say");
          EXPECT_EQ((*made)->options().plan, plan_of("dp=2,pp=2,zero=1"));
        }
        train(**made, data, consumed, 3, &losses);
        if (disturb) {
          // The next attempt succeeds as if there had been no failed one.
          const MoveResult move = move_run(**made, groups, {plan_of("tp=4,micro_batch=2"), kBatch});
          EXPECT_TRUE(move.done) << move.error;
        }
        if (rank == 0) (disturb ? disturbed : undisturbed) = losses;
      });
    }
    EXPECT_EQ(disturbed, undisturbed) << static_cast<int>(where);
  }
}

// Rank 2 makes none of the groups that the others wait for. After their time limit, all ranks
// continue together, and no group is left that only some of its members have.
TEST(Move, GroupsThatCannotBeMadeLeaveTheRunWhereItWas) {
  std::vector<double> disturbed, undisturbed;
  for (const bool disturb : {true, false}) {
    run_ranks(
        4,
        [&](int rank, GroupCache& groups) {
          const Dataset data = open_builtin();
          auto made = Trainer::create(groups, options_for("llama", plan_of("dp=2,pp=2")));
          ASSERT_TRUE(made.has_value()) << made.error().message;
          std::int64_t consumed = 0;
          std::vector<double> losses;
          train(**made, data, consumed, 3, &losses);
          const Configuration to{plan_of("dp=2,tp=2,micro_batch=2"), kBatch};
          if (disturb) {
            MoveOptions how;
            if (rank == 2) {
              how.hook = [&](MovePhase phase) {
                if (phase == MovePhase::kGroups)
                  throw std::runtime_error("too many open files, say");
              };
            }
            const MoveResult move = move_run(**made, groups, to, how);
            EXPECT_FALSE(move.done);
            EXPECT_NE(move.error.find("missing: rank 2"), std::string::npos) << move.error;
            EXPECT_EQ((*made)->options().plan, plan_of("dp=2,pp=2"));
            EXPECT_FALSE(groups.rendezvous().activity->read().over)
                << "the watchdog must still watch this rank";
          }
          train(**made, data, consumed, 3, &losses);
          if (disturb) {
            const MoveResult move = move_run(**made, groups, to);
            EXPECT_TRUE(move.done) << move.error;
            train(**made, data, consumed, 1);
          }
          if (rank == 0) (disturb ? disturbed : undisturbed) = losses;
        },
        std::chrono::seconds(6));
  }
  EXPECT_EQ(disturbed, undisturbed);
}

TEST(Move, ReadsMemoryWhereItMayAndMessagesDoTheRest) {
  const ParallelPlan from = plan_of("pp=4,micro_batch=2"), to = plan_of("dp=4,micro_batch=2");
  run_ranks(4, [&](int self, GroupCache& groups) {
    auto made = Trainer::create(groups, options_for("llama", from));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    const LayoutChange change{.model = (*made)->options().model,
                              .from = from,
                              .to = to,
                              .bucket_elements = (*made)->options().bucket_elements};
    const TransferPlan plan = plan_transfer(change, self);
    const std::vector<MayRead> choices = {nullptr, [](int) { return false; },
                                          [](int rank) { return rank == 3; }};
    for (const MayRead& may_read : choices) {
      std::int64_t expected = 0;
      for (const Transfer& transfer : plan.receives) {
        if (!may_read || may_read(transfer.peer)) expected += transfer.bytes;
      }
      const MoveResult there =
          move_run(**made, groups, {to, kBatch}, {.reshard = {.may_read = may_read}});
      ASSERT_TRUE(there.done) << there.error;
      EXPECT_EQ(there.bytes_read, expected);
      ASSERT_TRUE(move_run(**made, groups, {from, kBatch}).done);
    }
  });
}

// No process can read one page of the state that rank 1 must give away.
TEST(Move, FailedReadLeavesTheRunWhereItWas) {
  ParallelPlan from = plan_of("pp=2,micro_batch=2"), to = from;
  from.stage_layers = {2, 6};
  to.stage_layers = {6, 2};
  std::vector<double> disturbed, undisturbed;
  for (const bool disturb : {true, false}) {
    run_ranks(2, [&](int rank, GroupCache& groups) {
      const Dataset data = open_builtin();
      auto made = Trainer::create(groups, options_for("llama", from));
      ASSERT_TRUE(made.has_value()) << made.error().message;
      Trainer& trainer = **made;
      std::int64_t consumed = 0;
      std::vector<double> losses;
      train(trainer, data, consumed, 3, &losses);
      if (disturb) {
        const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
        void* page = nullptr;
        for (const auto& parameters : trainer.parameters()) {
          for (const Bucket& bucket : parameters->buckets()) {
            for (const PlacedTensor& tensor : bucket.tensors) {
              if (tensor.spec.name != "layers.3.mlp.down.weight") continue;
              void* place = bucket.values.data_ptr<float>() + tensor.offset;
              std::size_t space = static_cast<std::size_t>(tensor.size) * sizeof(float);
              page = std::align(size, size, place, space);
            }
          }
        }
        ASSERT_EQ(page != nullptr, rank == 1);
        const auto protect = [&](int how) { EXPECT_EQ(::mprotect(page, size, how), 0); };
        const std::vector<Tensor> before = state_of(trainer);
        MoveOptions how;
        if (rank == 1) {
          how.hook = [&](MovePhase phase) {
            if (phase == MovePhase::kAllocate) protect(PROT_NONE);
          };
        }
        const MoveResult move = move_run(trainer, groups, {to, kBatch}, how);
        if (rank == 1) protect(PROT_READ | PROT_WRITE);
        EXPECT_FALSE(move.done);
        EXPECT_TRUE(move.error.starts_with("rank 0: cannot read rank 1's memory: ")) << move.error;
        EXPECT_EQ(trainer.options().plan, from);
        EXPECT_TRUE(equal(before, state_of(trainer)));
      }
      train(trainer, data, consumed, 3, &losses);
      if (disturb) {
        const MoveResult move = move_run(trainer, groups, {to, kBatch});
        EXPECT_TRUE(move.done) << move.error;
      }
      if (rank == 0) (disturb ? disturbed : undisturbed) = losses;
    });
  }
  EXPECT_EQ(disturbed, undisturbed);
}

// A move cannot be undone after the commit, so the caller gets an exception from there unchanged.
TEST(Move, FailureAtTheCommitIsNotHidden) {
  run_ranks(2, [&](int rank, GroupCache& groups) {
    auto made = Trainer::create(groups, options_for("llama", plan_of("dp=2,micro_batch=2")));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    MoveOptions how;
    how.hook = [&](MovePhase phase) {
      if (phase == MovePhase::kCommit && rank == 1) throw std::runtime_error("the device is gone");
    };
    try {
      const MoveResult move =
          move_run(**made, groups, {plan_of("pp=2,micro_batch=2"), kBatch}, how);
      EXPECT_EQ(rank, 0);
      EXPECT_TRUE(move.done) << move.error;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(rank, 1);
      EXPECT_STREQ(error.what(), "the device is gone");
    }
  });
}

// A change of batch keeps Adam's moments and number of updates and the schedule's position in
// samples, and scales the learning rate by the square root of the batch.
TEST(Move, BatchChangeKeepsMomentsAndWarmUp) {
  run_ranks(2, [&](int, GroupCache& groups) {
    const Dataset data = open_builtin();
    const TrainerOptions options = options_for("llama", plan_of("dp=2,micro_batch=2"));
    auto made = Trainer::create(groups, options);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Trainer& trainer = **made;
    std::int64_t consumed = 0;
    train(trainer, data, consumed, 2);
    const std::vector<Tensor> before = state_of(trainer);
    const MoveResult move = move_run(trainer, groups, {plan_of("dp=2,micro_batch=4"), 4 * kBatch});
    ASSERT_TRUE(move.done) << move.error;
    EXPECT_EQ(move.bytes_moved, 0);
    EXPECT_TRUE(equal(before, state_of(trainer)));
    // The warm-up has 80 samples: 32 of them were before this step, which has 64.
    const Result<StepResult> step = trainer.step(data, consumed);
    ASSERT_TRUE(step.has_value());
    EXPECT_DOUBLE_EQ(step->lr, 2 * learning_rate(options.lr, 96));
    EXPECT_GT(step->lr, 1.9e-3);
  });
}

}  // namespace
}  // namespace copus
