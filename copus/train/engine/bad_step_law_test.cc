// A bad step changes nothing: weights, moments, the count of updates and all later steps are as if
// the step had not been run.
#include "copus/train/engine/test_training.h"

namespace copus {
namespace {

class BadStepLaw : public ::testing::TestWithParam<const char*> {};

TEST_P(BadStepLaw, ItIsAsIfItsSamplesWereNot) {
  const TrainerOptions options = options_for("llama", plan_of(GetParam()));
  const Dataset data = open_builtin();
  run_ranks(static_cast<int>(options.plan.gpus()), [&](int, GroupCache& groups) {
    auto judged = Trainer::create(groups, options), never = Trainer::create(groups, options);
    ASSERT_TRUE(judged && never);
    std::int64_t consumed = 0;
    train(**judged, data, consumed, 2);
    const std::vector<Tensor> before = state_of(**judged);
    double seen_loss = 0;
    (*judged)->set_judge([&](double loss, double) {
      seen_loss = loss;
      return std::string("too high");
    });
    const Result<StepResult> bad = (*judged)->step(data, consumed);
    ASSERT_TRUE(bad) << bad.error().message;
    EXPECT_TRUE(bad->is_bad());
    EXPECT_EQ(bad->spike, "too high");
    EXPECT_EQ(bad->loss, seen_loss);
    EXPECT_EQ((*judged)->updates(), 2);
    EXPECT_TRUE(equal(before, state_of(**judged)));

    (*judged)->set_judge([](double, double) { return std::string(); });
    consumed += options.global_batch;
    train(**judged, data, consumed, 2);

    std::int64_t other = 0;
    train(**never, data, other, 2);
    other += options.global_batch;
    train(**never, data, other, 2);
    EXPECT_TRUE(equal(state_of(**judged), state_of(**never)));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, BadStepLaw,
                         ::testing::Values("micro_batch=4", "dp=2,zero=1,micro_batch=4",
                                           "tp=2,micro_batch=4", "pp=2,micro_batch=4"));

// A weight that is not finite makes losses and gradients not finite as well, also on other ranks.
// The message must name the weight, since it is the cause.
TEST(NotFinite, TheMostBasicCauseIsNamedThenTheLowestRank) {
  const TrainerOptions options = options_for("llama", plan_of("dp=2,micro_batch=4"));
  const Dataset data = open_builtin();
  run_ranks(2, [&](int rank, GroupCache& groups) {
    auto trainer = Trainer::create(groups, options);
    ASSERT_TRUE(trainer);
    const auto spoil = [&] {
      const at::NoGradGuard no_grad;
      const Bucket& bucket = (*trainer)->parameters()[0]->buckets()[0];
      bucket.values.narrow(0, bucket.tensors[0].offset, 1).fill_(NAN);
      return bucket.tensors[0].spec.name;
    };
    const std::string name = rank == 1 ? spoil() : "";
    const Result<StepResult> one = (*trainer)->step(data, 0);
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_TRUE(one->not_finite.ends_with(" is not finite on rank 1")) << one->not_finite;
    EXPECT_TRUE(one->not_finite.starts_with("weight ")) << one->not_finite;
    if (rank == 1) {
      EXPECT_EQ(one->not_finite, fmt::format("weight {} is not finite on rank 1", name));
    }
    if (rank == 0) spoil();
    const Result<StepResult> both = (*trainer)->step(data, 0);
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_TRUE(both->not_finite.starts_with("weight ")) << both->not_finite;
    EXPECT_TRUE(both->not_finite.ends_with(" is not finite on rank 0")) << both->not_finite;
  });
}

}  // namespace
}  // namespace copus
