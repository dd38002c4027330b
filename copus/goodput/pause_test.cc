#include "copus/goodput/pause.h"

#include <gtest/gtest.h>

#include "copus/interop/hf_config.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

Configuration at(const char* plan) {
  const Result<PartialPlan> parsed = parse_plan_text(plan, "plan");
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return {parsed->plan, 64};
}

class Pause : public ::testing::Test {
 protected:
  double between(const char* from, const char* to) const {
    return predict_pause_s(model_, cluster_, {}, at(from), at(to));
  }
  ModelSpec model_ = load_model("llama-3.2-3b").value();
  ClusterSpec cluster_ = load_cluster("1x8xH100-80GB-SXM").value();
};

TEST_F(Pause, NothingMovesNothing) {
  EXPECT_EQ(between("dp=8,micro_batch=1", "dp=8,micro_batch=4,recompute=full"), 0);
}

// Every replica holds all: a stage of it is there already.
TEST_F(Pause, ToStagesIsFasterThanFromStages) {
  EXPECT_LT(between("dp=8", "dp=2,pp=4"), between("dp=2,pp=4", "dp=8"));
}

TEST_F(Pause, FollowsTheBytesAndTheLink) {
  // From a quarter to all: three quarters of 14 bytes a parameter come over the link.
  const double bytes = 0.75 * 14 * static_cast<double>(model_.total_params());
  const double link = cluster_.gpu.link_bandwidth.v * cluster_.gpu.link_efficiency;
  const double pause = between("dp=2,pp=4", "dp=8");
  EXPECT_GT(pause, bytes / link);
  EXPECT_LT(pause, 3 * bytes / link + 0.2);
}

TEST_F(Pause, ShardedOptimizerStateComesFromAll) {
  EXPECT_GT(between("dp=8,zero=1", "dp=2,pp=4"), between("dp=8", "dp=2,pp=4"));
}

}  // namespace
}  // namespace copus
