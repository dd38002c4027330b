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
  if (pick(0, 1) == 1) plan.etp = pick(0, 9) == 0 ? 3 : std::int64_t{1} << pick(0, 3);
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

// A mixture whose shared experts have a width that few tp divide.
ModelSpec with_odd_shared_experts() {
  ModelSpec model = load_model("llama-4-maverick").value();
  model.moe.shared_experts = 3;
  model.moe.expert_ffn = 6;
  return model;
}

struct Jobs {
  std::vector<ModelSpec> models = {load_model("llama-3-8b").value(),
                                   load_model("mixtral-8x7b").value(),
                                   load_model("gpt2-xl").value(), with_odd_shared_experts()};
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
  // Every rule is broken at least once, except the eleven rules that check ranges.
  std::size_t never_broken = 0;
  for (std::size_t r = 0; r < held.size(); ++r) {
    EXPECT_GT(held[r], 0) << "rule " << r;
    if (broken[r] == 0) {
      EXPECT_LE(plan_rules()[r].fields.list().size(), 2U) << "rule " << r;
      ++never_broken;
    }
  }
  EXPECT_EQ(never_broken, 11U);
}

// Checks the rules as the search does: field by field, each rule once, as soon as possible.
TEST(PlanRules, AskedFieldByFieldAreTheRulesOfTheWholePlan) {
  const Jobs jobs;
  std::mt19937_64 random(2);
  int valid = 0;
  for (int i = 0; i < 6000; ++i) {
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

TEST(PlanRules, UncutExpertsDivideAllRanksOfAStage) {
  const ModelSpec model = load_model("deepseek-v3").value();
  const ClusterSpec cluster = load_cluster("128x8xH100-80GB-SXM").value();
  const auto said = [&](const char* text) {
    const ParallelPlan plan = parse_plan_text(text, "--plan").value().plan;
    const Result<void> valid = plan.validate(model, cluster, 4096, 8192);
    return valid ? "" : valid.error().message;
  };
  // dp*cp = 32, and tp*cp*dp = 64.
  EXPECT_EQ(said("dp32.tp2.pp16.mb1.ep64.etp1.sp.split4x15-1"), "");
  EXPECT_EQ(said("dp32.tp2.pp16.mb1.ep32.sp.split4x15-1"), "");
  EXPECT_EQ(said("dp32.tp2.pp16.mb1.ep64.sp.split4x15-1"),
            "ep: got 64, which does not divide 32 ranks of dp*cp; want a divisor (1, 2, 4, 8, 16, "
            "32), or etp=1");
  EXPECT_EQ(said("dp32.tp2.pp16.mb1.ep128.etp1.sp.split4x15-1"),
            "ep: got 128, which does not divide 64 ranks of tp*cp*dp/etp; want a divisor (1, 2, 4, "
            "8, 16, 32, …)");
  EXPECT_EQ(said("dp32.tp2.pp16.mb1.etp1.split4x15-1"),
            "sp: got 0 with tp=2 and etp=1; want 1, because each rank sends its own tokens");
  const ModelSpec dense = load_model("llama-3-70b").value();
  const ParallelPlan plan = parse_plan_text("dp32.tp2.pp16.mb1.etp1.sp", "--plan").value().plan;
  EXPECT_EQ(plan.validate(dense, cluster, 4096, 8192).error().message,
            "etp: got 1; want tp (2), or no etp, because llama-3-70b has no experts");
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
