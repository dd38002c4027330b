#include "copus/train/engine/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

namespace copus {
namespace {

// The algorithm as the paper writes it (Loshchilov & Hutter 2019, algorithm 2), in double.
TEST(AdamW, FollowsTheTextbookInDouble) {
  const AdamOptions options;
  constexpr std::int64_t n = 40'000;  // more than one thread's share
  Tensor values = at::randn({n}), moment1 = at::zeros({n}), moment2 = at::zeros({n});
  Tensor w = values.to(at::kDouble), m = at::zeros({n}, at::kDouble), v = m.clone();
  const Tensor low = at::empty({n}, at::kBFloat16);
  constexpr int kSteps = 20;
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor gradient = at::randn({n}).mul_(std::pow(10.0, step % 5 - 3));
    const double lr = 0.01 / step, decay = 0.1, scale = step % 2 == 0 ? 0.5 : 1.0;
    adamw_update(options, lr, decay, step, scale, values, gradient, moment1, moment2, low);
    EXPECT_TRUE(at::equal(low, values.to(at::kBFloat16)));
    const Tensor g = gradient.to(at::kDouble) * scale;
    m = options.beta1 * m + (1 - options.beta1) * g;
    v = options.beta2 * v + (1 - options.beta2) * g * g;
    const Tensor m_hat = m / (1 - std::pow(options.beta1, step));
    const Tensor v_hat = v / (1 - std::pow(options.beta2, step));
    w = w - lr * (m_hat / (v_hat.sqrt() + options.eps) + decay * w);
  }
  // Each step rounds the weight twice: once in an intermediate result, once when it is stored.
  const Tensor rounded = (values.to(at::kDouble) - w).abs() / w.abs().clamp_min(1);
  EXPECT_LT(rounded.max().item<double>(), kSteps * 0x1p-23);
}

TEST(SumOfSquares, IsExactWhereFp32SumsAreNot) {
  // 2^25 ones: FP32 stops counting at 2^24.
  const Tensor total = at::zeros({}, at::kDouble);
  add_sum_of_squares(at::ones({1 << 25}), total);
  EXPECT_EQ(total.item<double>(), static_cast<double>(1 << 25));
  add_sum_of_squares(at::full({3}, 2.0), total);
  EXPECT_EQ(total.item<double>(), static_cast<double>(1 << 25) + 12.0);
}

TEST(LearningRate, RisesLinearlyThenFollowsACosineToTheFloor) {
  const LrSchedule s{.peak = 1, .floor = 0.1, .warmup_samples = 100, .decay_samples = 1100};
  EXPECT_DOUBLE_EQ(learning_rate(s, 25), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 600), 0.55);
  EXPECT_NEAR(learning_rate(s, 1100), 0.1, 1e-15);
  EXPECT_NEAR(learning_rate(s, 99'999), 0.1, 1e-15);
}

TEST(LearningRate, IsAtTheFloorAfterADecayThatEndsBeforeTheWarmUp) {
  const LrSchedule s{.peak = 1, .floor = 0.1, .warmup_samples = 20, .decay_samples = 8};
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100), 0.1);
  // If the warm-up is still below the floor when the decay ends, the rate follows the warm-up.
  const LrSchedule slow{.peak = 1, .floor = 0.1, .warmup_samples = 4000, .decay_samples = 40};
  EXPECT_DOUBLE_EQ(learning_rate(slow, 40), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(slow, 4000), 0.1);
}

TEST(LearningRate, IsAFunctionOfSamplesNotOfSteps) {
  const LrSchedule s{.peak = 1, .floor = 0, .warmup_samples = 64, .decay_samples = 4096};
  for (std::int64_t samples = 0; samples < 5000; samples += 16) {
    EXPECT_GE(learning_rate(s, samples), 0);
    EXPECT_LE(learning_rate(s, samples), 1);
  }
  const LrSchedule constant{.peak = 2, .floor = 0, .warmup_samples = 0, .decay_samples = 0};
  EXPECT_EQ(learning_rate(constant, 1), 2);
  EXPECT_EQ(learning_rate(constant, 1'000'000), 2);
}

}  // namespace
}  // namespace copus
