// Tests that the search's inner loop allocates nothing. This test is a binary of its own because it
// replaces operator new.
#include <gtest/gtest.h>

#include <vector>

#include "copus/base/count_allocations.h"
#include "copus/cost/step.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

TEST(Allocations, AreCounted) {
  const std::size_t before = allocations;
  const std::vector<int> some(100);
  EXPECT_GT(allocations, before);
}

TEST(ClosedForm, AllocatesNothing) {
  for (const char* name : {"gpt3-175b", "llama-3-70b", "mixtral-8x7b", "deepseek-v3"}) {
    const ModelSpec model = load_model(name).value();
    const ClusterSpec cluster = load_cluster("512x8xH100-80GB-SXM").value();
    const StepModel step(model, cluster, 2048, 4096, CostOptions());
    double sum = 0;
    int plans = 0;
    ParallelPlan plan;
    plan.tp = 8;
    plan.sp = true;
    const std::size_t before = allocations;
    for (plan.pp = 1; plan.pp <= 32; plan.pp *= 2) {
      for (plan.vp = 1; plan.vp <= (plan.pp > 1 ? 4 : 1); ++plan.vp) {
        plan.schedule = plan.vp > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
        plan.dp = cluster.gpus() / (plan.tp * plan.pp);
        const ShapeCosts costs = step.shape_costs(plan);
        const StageSplit split = step.balanced(plan, costs);
        sum += step.closed_form(plan, costs, split).time.v;
        ++plans;
      }
    }
    EXPECT_EQ(allocations, before) << plans << " predictions of " << name;
    EXPECT_GT(sum, 0);
  }
}

}  // namespace
}  // namespace copus
