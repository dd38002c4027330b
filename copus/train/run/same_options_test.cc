#include "copus/train/run/same_options.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "copus/train/comm/rank_threads.h"
#include "copus/train/model/test_models.h"

namespace copus {
namespace {

RunOptions usual_options() {
  RunOptions options;
  options.trainer.model = testing_models::llama();
  options.trainer.seq_len = 16;
  options.config = "model = \"/here/model.json\"\nsteps = 3\nfix = \"/here/plan.json\"\n";
  options.adapt.spaces = {parse_plan_text("tp=1,zero=0", "--fix").value()};
  options.adapt.cluster = ranks_as_cluster(2, 2);
  return options;
}

// Returns rank 1's error if `change` changes its options and `seed` its data, and rank 0 has the
// usual ones; empty: there is no error.
std::string said_of(const std::function<void(RunOptions&)>& change, std::uint64_t seed = 1) {
  std::string said;
  run_ranks(2, [&](int rank, GroupCache& groups) {
    RunOptions options = usual_options();
    if (rank == 1) change(options);
    const Result<Dataset> data =
        Dataset::open({"builtin"}, {.seq_len = 16, .seed = rank == 1 ? seed : 1});
    ASSERT_TRUE(data.has_value()) << data.error().message;
    const Result<void> same = check_same_options(groups.rendezvous(), options, *data);
    if (rank == 1 && !same) said = same.error().message;
    if (rank == 0) {
      EXPECT_TRUE(same.has_value()) << "the other ranks are compared with rank 0";
    }
  });
  return said;
}

TEST(SameOptions, PathsAndNamesMayDiffer) {
  EXPECT_EQ(said_of([](RunOptions&) {}), "");
  EXPECT_EQ(said_of([](RunOptions& o) { o.trainer.model.name = "renamed"; }), "");
  EXPECT_EQ(said_of([](RunOptions& o) {
              o.config =
                  "model = \"/there/model.json\"\nsteps = 3\nfix = \"/there/plan.json\"\n"
                  "cluster = \"/there/cluster.json\"\n";
              o.run_dir = "/there";
            }),
            "");
}

TEST(SameOptions, AnythingElseIsNamedWithBothValues) {
  EXPECT_EQ(said_of([](RunOptions& o) { o.config = "steps = 4\n"; }),
            "rank 1: got steps = 4; want steps = 3, as rank 0 has it");
  EXPECT_EQ(said_of([](RunOptions& o) { o.trainer.model.max_positions = 65; }),
            "rank 1: got model: max_position_embeddings = 65; want model: max_position_embeddings "
            "= 64, as rank 0 has it");
  EXPECT_EQ(said_of([](RunOptions& o) { o.trainer.model.init_std = 0.5; }),
            "rank 1: got model: initializer_range = 0.5; want model: initializer_range = 0.02, as "
            "rank 0 has it");
  EXPECT_EQ(said_of([](RunOptions& o) { o.adapt.spaces[0].plan.tp = 2; }),
            "rank 1: got fix: tp = 2; want fix: tp = 1, as rank 0 has it");
  EXPECT_EQ(said_of([](RunOptions& o) { o.adapt.cluster->gpus_per_node = 4; }),
            "rank 1: got cluster: gpus_per_node = 4; want cluster: gpus_per_node = 2, as rank 0 "
            "has it");
}

TEST(SameOptions, OtherDataShowsInItsSamples) {
  const std::string said = said_of([](RunOptions&) {}, 2);
  EXPECT_TRUE(said.starts_with("rank 1: got samples = ")) << said;
}

}  // namespace
}  // namespace copus
