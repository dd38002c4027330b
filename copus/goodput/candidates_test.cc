#include "copus/goodput/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/tuner/search.h"

namespace copus {
namespace {

using Int = std::int64_t;
using Layout = std::tuple<Int, Int, Int, Int, Int>;

Layout layout(const ParallelPlan& p) { return {p.tp, p.cp, p.ep, p.pp, p.dp}; }

// A model on a cluster, and its candidates.
struct Place {
  ModelSpec model;
  ClusterSpec cluster;
  CostOptions cost;
  CandidateRequest request;

  Place(const char* model_name, const char* cluster_name, Int seq_len, std::vector<Int> batches,
        const std::vector<const char*>& spaces = {"cp=1,zero=0", "cp=1,zero=1"})
      : model(load_model(model_name).value()), cluster(load_cluster(cluster_name).value()) {
    request.seq_len = seq_len;
    request.batches = std::move(batches);
    for (const char* space : spaces) {
      request.spaces.push_back(parse_plan_text(space, "--fix").value());
    }
  }

  std::vector<Candidate> enumerate() const {
    return enumerate_candidates(model, cluster, cost, request);
  }
  SearchResult find(Int batch, const PartialPlan& space, bool variants) const {
    const StepModel step(model, cluster, request.seq_len, batch, cost);
    SearchRequest all;
    all.fixed = space;
    all.top = 20000;
    all.variants = variants;
    return search(step, all);
  }
  // The layouts of one batch with a variant that the engine can run, by an exhaustive search.
  std::set<Layout> runnable_layouts(Int batch) const {
    std::set<Layout> layouts;
    for (const PartialPlan& space : request.spaces) {
      for (const RankedPlan& ranked : find(batch, space, true).plans) {
        if (!request.runnable || request.runnable(ranked.plan, batch)) {
          layouts.insert(layout(ranked.plan));
        }
      }
    }
    return layouts;
  }
};

std::set<Layout> layouts_at(const std::vector<Candidate>& candidates, Int batch) {
  std::set<Layout> layouts;
  for (const Candidate& candidate : candidates) {
    if (candidate.at.global_batch == batch) layouts.insert(layout(candidate.at.plan));
  }
  return layouts;
}

const Candidate* find_placement(const std::vector<Candidate>& candidates, const ParallelPlan& plan,
                                Int batch) {
  const auto found =
      std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
        return candidate.at.global_batch == batch && same_placement(candidate.at.plan, plan);
      });
  return found == candidates.end() ? nullptr : &*found;
}

TEST(Candidates, HoldEveryLayoutThatFits) {
  const Place place("llama-3.2-3b", "1x8xH100-80GB-SXM", 2048, {8, 16, 64});
  const std::vector<Candidate> candidates = place.enumerate();
  for (const Int batch : place.request.batches) {
    EXPECT_EQ(layouts_at(candidates, batch), place.runnable_layouts(batch)) << batch;
  }
}

TEST(Candidates, BeginAtEachBatchWithWhatTheSearchFindsBest) {
  const Place place("llama-3.2-3b", "1x8xH100-80GB-SXM", 2048, {8, 64});
  const std::vector<Candidate> candidates = place.enumerate();
  for (const Int batch : place.request.batches) {
    const auto first = std::find_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& c) { return c.at.global_batch == batch; });
    ASSERT_NE(first, candidates.end());
    double best = 1e300;
    for (const PartialPlan& space : place.request.spaces) {
      best = std::min(best, place.find(batch, space, false).plans.front().estimate.time.v);
    }
    EXPECT_DOUBLE_EQ(first->predicted.total().v, best);
  }
}

TEST(Candidates, AreSortedAndHoldEachPlacementOnceABatch) {
  const Place place("tiny", "1x8xH100-80GB-SXM", 128, {8, 16, 32});
  const std::vector<Candidate> candidates = place.enumerate();
  ASSERT_FALSE(candidates.empty());
  for (std::size_t i = 0; i + 1 < candidates.size(); ++i) {
    const auto key = [](const Candidate& c) {
      return std::tuple(c.at.global_batch, c.predicted.total().v);
    };
    EXPECT_LE(key(candidates[i]), key(candidates[i + 1]));
    for (std::size_t k = i + 1; k < candidates.size(); ++k) {
      EXPECT_FALSE(candidates[i].at.global_batch == candidates[k].at.global_batch &&
                   same_placement(candidates[i].at.plan, candidates[k].at.plan))
          << to_text(candidates[i].at) << " and " << to_text(candidates[k].at);
    }
  }
}

TEST(Candidates, HoldALayoutWhoseFastestVariantTheEngineCannotRun) {
  Place place("llama-3.2-3b", "1x8xH100-80GB-SXM", 2048, {16, 64});
  const std::size_t all = place.enumerate().size();
  Int asked_of_vp = 0;
  place.request.runnable = [&](const ParallelPlan& plan, Int) {
    if (plan.vp > 1) ++asked_of_vp;
    return plan.vp == 1 && plan.micro_batch == 1 && plan.stage_layers.empty();
  };
  const std::vector<Candidate> candidates = place.enumerate();
  EXPECT_GT(asked_of_vp, 0);  // a fastest variant was refused: the case is met
  EXPECT_LT(candidates.size(), all);
  for (const Candidate& candidate : candidates) {
    EXPECT_TRUE(place.request.runnable(candidate.at.plan, candidate.at.global_batch))
        << to_text(candidate.at);
  }
  for (const Int batch : place.request.batches) {
    EXPECT_EQ(layouts_at(candidates, batch), place.runnable_layouts(batch)) << batch;
  }
}

TEST(Candidates, LayoutsThatCannotRunTakeNoPlaces) {
  Place place("tiny", "1x8xH100-80GB-SXM", 128, {32}, {"cp=1,zero=0"});
  place.request.runnable = [](const ParallelPlan& plan, Int) { return plan.tp == 1; };
  ASSERT_EQ(place.runnable_layouts(32).size(), 3U);  // pp 1, 2 and 4
  place.request.layouts_per_batch = 2;
  EXPECT_EQ(layouts_at(place.enumerate(), 32).size(), 2U);
}

TEST(Candidates, APlacementOfOneBatchIsThereAtAllWhereItFits) {
  const Place place("llama-3.2-3b", "1x8xH100-80GB-SXM", 2048, {16, 32, 128});
  const std::vector<Candidate> candidates = place.enumerate();
  std::size_t uneven = 0;
  for (const Candidate& candidate : candidates) {
    for (const Int batch : place.request.batches) {
      if (find_placement(candidates, candidate.at.plan, batch) != nullptr) continue;
      // No variant is valid at that batch, or none fits in memory.
      PartialPlan space;
      space.plan = candidate.at.plan;
      space.given = {PlanField::kTp, PlanField::kCp, PlanField::kPp,   PlanField::kDp,
                     PlanField::kEp, PlanField::kVp, PlanField::kZero, PlanField::kSchedule};
      for (const RankedPlan& ranked : place.find(batch, space, true).plans) {
        EXPECT_FALSE(same_placement(ranked.plan, candidate.at.plan))
            << short_name(ranked.plan) << " at " << batch;
      }
    }
    if (!candidate.at.plan.stage_layers.empty()) ++uneven;
  }
  EXPECT_GT(uneven, 0U);  // the law is tested for splits by hand, too
}

TEST(Candidates, HoldTheKeptPlacementAtEveryBatch) {
  Place place("tiny", "1x8xH100-80GB-SXM", 128, {8, 16, 32}, {"cp=1,zero=0"});
  ParallelPlan slow;  // outside of the spaces
  slow.dp = 4;
  slow.tp = 2;
  slow.zero = 1;
  slow.recompute = Recompute::kFull;
  place.request.keep = {slow};
  const std::vector<Candidate> candidates = place.enumerate();
  for (const Int batch : place.request.batches) {
    const Candidate* kept = find_placement(candidates, slow, batch);
    ASSERT_NE(kept, nullptr) << batch;
    EXPECT_EQ(kept->at.plan.recompute, Recompute::kFull);
  }
}

TEST(Candidates, OnePredictedAloneIsWhatTheListSays) {
  const Place place("tiny", "1x4xH100-80GB-SXM", 128, {8, 16});
  for (const Candidate& candidate : place.enumerate()) {
    const Candidate alone =
        predict_candidate(place.model, place.cluster, place.cost, 128, candidate.at);
    EXPECT_DOUBLE_EQ(alone.predicted.total().v, candidate.predicted.total().v);
    EXPECT_DOUBLE_EQ(alone.predicted.dp.v, candidate.predicted.dp.v);
  }
}

TEST(BatchLadder, DoublesFromEndToEnd) {
  EXPECT_EQ(batch_ladder(16, 128), (std::vector<Int>{16, 32, 64, 128}));
  EXPECT_EQ(batch_ladder(16, 100), (std::vector<Int>{16, 32, 64, 100}));
  EXPECT_EQ(batch_ladder(3, 3), (std::vector<Int>{3}));
}

TEST(Placement, IsTheSameWhereNoStateMoves) {
  ParallelPlan plan;
  plan.pp = 2;
  plan.dp = 4;
  ParallelPlan other = plan;
  other.micro_batch = 8;
  other.recompute = Recompute::kFull;
  other.sp = true;
  other.schedule = ScheduleKind::kGPipe;
  other.stage_layers = {8, 8};
  EXPECT_TRUE(same_placement(plan, other));
  other.stage_layers = {9, 7};
  EXPECT_FALSE(same_placement(plan, other));
  other = plan;
  other.zero = 1;
  EXPECT_FALSE(same_placement(plan, other));
  other.dp = plan.dp = 1;  // one rank's share is the whole
  EXPECT_TRUE(same_placement(plan, other));
}

TEST(Placement, ConfigurationsReadAsPlanAndBatch) {
  ParallelPlan plan;
  plan.dp = 2;
  plan.pp = 2;
  plan.micro_batch = 4;
  EXPECT_EQ(to_text({plan, 32}), "dp2.tp1.pp2.mb4 at batch 32");
}

TEST(Placement, ConfigurationsParseBackToWhatTheyWere) {
  std::mt19937_64 random(1);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    Configuration at;
    for (auto* count : {&at.plan.tp, &at.plan.cp, &at.plan.pp, &at.plan.vp, &at.plan.dp}) {
      *count = pick(1, 4);
    }
    at.plan.micro_batch = pick(1, 64);
    at.plan.zero = static_cast<int>(pick(0, 3));
    at.plan.recompute = static_cast<Recompute>(pick(0, 2));
    at.plan.sp = pick(0, 1) == 1;
    at.plan.schedule = static_cast<ScheduleKind>(pick(0, 3));
    for (std::int64_t k = pick(0, 6); k > 0; --k) at.plan.stage_layers.push_back(pick(0, 3));
    at.global_batch = pick(0, 1) == 1 ? pick(1, 4096) : pick(0, std::int64_t{1} << 60);
    const Result<Configuration> back = parse_configuration(to_text(at));
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(*back, at) << to_text(at);
  }
}

TEST(Placement, WhatIsNoConfigurationIsRefused) {
  for (const char* text : {"", "dp2.tp1.pp2.mb4", "dp2 at batch", "dp2 at batch x", "at batch 4",
                           "dp2.tp1 at batch 4 at batch 8", "dp0 at batch 4"}) {
    EXPECT_FALSE(parse_configuration(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace copus
