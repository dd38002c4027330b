#include "copus/spec/plan_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

// Returns a random plan with small counts, so that most rules hold about half of the time.
ParallelPlan any_plan(std::mt19937_64& random, const ModelSpec& model) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  ParallelPlan plan;
  for (auto* count : {&plan.tp, &plan.cp, &plan.pp, &plan.vp, &plan.dp, &plan.ep}) {
    *count = std::int64_t{1} << pick(0, 3);
    if (pick(0, 9) == 0) *count += 1;
  }
  plan.micro_batch = pick(1, 4);
  plan.zero = static_cast<int>(pick(0, 3));
  plan.recompute = static_cast<Recompute>(pick(0, 2));
  plan.sp = pick(0, 1) == 1;
  plan.schedule = static_cast<ScheduleKind>(pick(0, 3));
  if (pick(0, 1) == 1) {
    const std::int64_t chunks = pick(0, 5) == 0 ? plan.pp : plan.pp * plan.vp;
    plan.stage_layers.assign(static_cast<std::size_t>(chunks), model.layers / chunks);
    if (pick(0, 5) == 0) plan.stage_layers.back() += pick(-1, 1);
  }
  return plan;
}

struct Jobs {
  std::vector<ModelSpec> models = {load_model("llama-3-8b").value(),
                                   load_model("mixtral-8x7b").value(),
                                   load_model("gpt2-xl").value()};
  ClusterSpec cluster = load_cluster("8x8xH100-80GB-SXM").value();
};

TEST(PlanRules, LookAtTheFieldsThatTheyNameAlone) {
  const Jobs jobs;
  std::mt19937_64 random(1);
  std::vector<int> held(plan_rules().size()), broken(plan_rules().size());
  for (int i = 0; i < 3000; ++i) {
    const ModelSpec& model = jobs.models[static_cast<std::size_t>(i) % jobs.models.size()];
    const PlanJob job{model, jobs.cluster, 1020, 48,
                      i % 2 == 0 ? StageCut::kLayers : StageCut::kWork};
    const ParallelPlan plan = any_plan(random, model), other = any_plan(random, model);
    for (std::size_t r = 0; r < plan_rules().size(); ++r) {
      const PlanRule& rule = plan_rules()[r];
      ParallelPlan mixed = other;
      for (const PlanField field : rule.fields.list()) copy_value(field, plan, mixed);
      EXPECT_EQ(rule.holds(mixed, job), rule.holds(plan, job)) << "rule " << r;
      ++(rule.holds(plan, job) ? held : broken)[r];
    }
  }
  // Every rule is broken at least once, except the ten rules that check ranges.
  std::size_t never_broken = 0;
  for (std::size_t r = 0; r < held.size(); ++r) {
    EXPECT_GT(held[r], 0) << "rule " << r;
    if (broken[r] == 0) {
      EXPECT_LE(plan_rules()[r].fields.list().size(), 2U) << "rule " << r;
      ++never_broken;
    }
  }
  EXPECT_EQ(never_broken, 10U);
}

// Checks the rules as the search does: field by field, each rule once, as soon as possible.
TEST(PlanRules, AskedFieldByFieldAreTheRulesOfTheWholePlan) {
  const Jobs jobs;
  std::mt19937_64 random(2);
  int valid = 0;
  for (int i = 0; i < 3000; ++i) {
    const ModelSpec& model = jobs.models[static_cast<std::size_t>(i) % jobs.models.size()];
    ClusterSpec cluster = jobs.cluster;
    const ParallelPlan plan = any_plan(random, model);
    cluster.nodes = 1;
    cluster.gpus_per_node = plan.gpus();
    const PlanJob job{model, cluster, 2048, 64 * 64, StageCut::kLayers};
    std::vector<PlanField> order(kPlanFields.begin(), kPlanFields.end());
    std::shuffle(order.begin(), order.end(), random);
    PlanFields known;
    std::size_t asked = 0;
    bool holds = true;
    for (const PlanField field : order) {
      for (const PlanRule* rule : rules_of(known, {field})) {
        ++asked;
        holds = holds && rule->holds(plan, job);
      }
      known.add(field);
      EXPECT_TRUE(!holds || broken_rule(known, plan, job) == nullptr);
    }
    const Result<void> whole = plan.validate(model, cluster, job.seq_len, job.global_batch);
    EXPECT_EQ(holds, whole.has_value()) << short_name(plan);
    EXPECT_EQ(asked,
              plan_rules().size() + engine_rules().size() - 2);  // two rules depend only on the job
    valid += holds ? 1 : 0;
  }
  EXPECT_GT(valid, 50);
}

TEST(PlanRules, TellTheFieldOfTheirErrors) {
  const Jobs jobs;
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const ModelSpec& model = jobs.models[static_cast<std::size_t>(i) % jobs.models.size()];
    const PlanJob job{model, jobs.cluster, 1020, 48, StageCut::kLayers};
    const ParallelPlan plan = any_plan(random, model);
    const PlanRule* broken = broken_rule(PlanFields::all(), plan, job);
    if (broken == nullptr) continue;
    const Error error = broken->why(plan, job);
    EXPECT_FALSE(error.field.empty());
    EXPECT_TRUE(error.message.starts_with(error.field + ": ")) << error.message;
  }
}

}  // namespace
}  // namespace copus
