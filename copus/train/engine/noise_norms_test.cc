// The gradient norms from which the noise scale is estimated must not depend on the layout. Each
// norm is compared with the gradient norm of one rank that trains on just those samples.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "copus/train/comm/rank_threads.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/model/test_models.h"

namespace copus {
namespace {

constexpr std::int64_t kNormBatch = 32;
constexpr int kSteps = 3;

// Options with a learning rate of 0, so that every step takes its gradient at the same weights.
TrainerOptions frozen(const std::string& model, const std::string& plan_text, std::int64_t batch) {
  Result<PartialPlan> plan = parse_plan_text(plan_text, "--plan");
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  TrainerOptions options;
  options.model = testing_models::model_named(model);
  options.plan = plan->plan;
  options.seq_len = 64;
  options.global_batch = batch;
  options.lr = {.peak = 0, .floor = 0};
  options.clip_norm = 1e-3;  // clipping must not show in the norms
  options.bucket_elements = 4000;
  options.noise_every = 1;
  return options;
}

std::vector<StepResult> steps(const TrainerOptions& options, std::int64_t first_sample, int count) {
  std::vector<StepResult> results;
  run_ranks(static_cast<int>(options.plan.gpus()), [&](int rank, GroupCache& groups) {
    Result<Dataset> data = Dataset::open({"builtin"}, {.seq_len = 64, .seed = 7, .vocab = 251});
    ASSERT_TRUE(data.has_value()) << data.error().message;
    Result<std::unique_ptr<Trainer>> trainer = Trainer::create(groups, options);
    ASSERT_TRUE(trainer.has_value()) << trainer.error().message;
    for (int i = 0; i < count; ++i) {
      const Result<StepResult> done =
          (*trainer)->step(*data, first_sample + i * options.global_batch);
      ASSERT_TRUE(done.has_value()) << done.error().message;
      if (rank == 0) results.push_back(*done);
    }
  });
  return results;
}

// Returns the mean squared gradient norm of `count` batches of `samples` samples, which begin
// `apart` samples from each other. One rank computes each batch.
double reference(const std::string& model, std::int64_t first, std::int64_t samples,
                 std::int64_t count, std::int64_t apart) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const TrainerOptions options = frozen(model, "micro_batch=1", samples);
    sum += std::pow(steps(options, first + i * apart, 1).at(0).grad_norm, 2);
  }
  return sum / static_cast<double>(count);
}

struct Case {
  const char* model;
  const char* plan;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.plan; }

class NoiseNorms8 : public ::testing::TestWithParam<Case> {};

TEST_P(NoiseNorms8, AreThoseOfOneRank) {
  const auto& [model, plan] = GetParam();
  const TrainerOptions options = frozen(model, plan, kNormBatch);
  const std::int64_t dp = options.plan.dp, share = kNormBatch / dp;
  const std::vector<StepResult> results = steps(options, 0, 1);
  ASSERT_TRUE(results.at(0).norms.has_value());
  const NoiseNorms& norms = *results[0].norms;
  // With 32 samples on 8 ranks, the prefix is 4 samples at every layout.
  ASSERT_EQ(norms.first.batch, 4);
  EXPECT_NEAR(norms.first.value / reference(model, 0, 4, 1, 0), 1, 1e-4);
  EXPECT_NEAR(norms.global.value / reference(model, 0, kNormBatch, 1, 0), 1, 1e-4);
  for (const SquaredNorm& norm : norms.all) {
    const auto samples = static_cast<std::int64_t>(norm.batch);
    ASSERT_TRUE(samples == 4 || samples == share || samples == kNormBatch);
    const std::int64_t count = samples == kNormBatch ? 1 : dp;
    EXPECT_EQ(norm.count, static_cast<double>(count));
    EXPECT_NEAR(norm.value / reference(model, 0, samples, count, share), 1, 1e-4) << samples;
  }
  EXPECT_EQ(norms.all.size(), dp > 1 && share > 4 ? 3U : 2U);
}

constexpr Case kCases[] = {
    {"llama", "dp=8,micro_batch=2"},
    {"llama", "dp=8,zero=1,micro_batch=4"},
    {"llama", "tp=8,micro_batch=4"},
    {"llama", "tp=8,sp=1,micro_batch=2"},
    {"tied", "pp=8,micro_batch=2"},
    {"tied", "dp=2,tp=2,pp=2,sp=1,zero=1,micro_batch=2"},
    {"gpt2", "dp=4,pp=2,micro_batch=1"},
    {"gpt2", "dp=2,tp=4,micro_batch=4"},
    {"qwen3", "tp=4,pp=2,vp=2,schedule=interleaved,micro_batch=2"},
    {"qwen3", "dp=4,tp=2,sp=1,micro_batch=2,recompute=full"},
    {"tied", "dp=2,pp=4,split=1-3-3-1,micro_batch=4"},
    {"llama", "dp=2,pp=4,schedule=gpipe,zero=1,micro_batch=1"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, NoiseNorms8, ::testing::ValuesIn(kCases));

// The estimate does not jump when the layout changes.
TEST(NoiseNorms, TwoTermsAgreeAcrossLayouts) {
  const char* plans[] = {"dp=8,micro_batch=2",
                         "dp=8,micro_batch=1,zero=1",
                         "tp=8,micro_batch=4,sp=1",
                         "pp=8,micro_batch=2",
                         "dp=2,tp=2,pp=2,micro_batch=4",
                         "dp=4,tp=2,micro_batch=2,zero=1",
                         "dp=4,pp=2,micro_batch=1",
                         "tp=2,pp=4,micro_batch=2",
                         "dp=2,tp=4,micro_batch=2,sp=1,zero=1",
                         "pp=4,vp=2,dp=2,schedule=interleaved,micro_batch=2"};
  std::vector<NoiseTerms> first;
  for (const char* plan : plans) {
    const std::vector<StepResult> results = steps(frozen("tied", plan, kNormBatch), 0, kSteps);
    ASSERT_EQ(results.size(), static_cast<std::size_t>(kSteps));
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_TRUE(results[i].norms.has_value()) << plan;
      const SquaredNorm pair[] = {results[i].norms->first, results[i].norms->global};
      const std::optional<NoiseTerms> terms = fit_noise(pair);
      ASSERT_TRUE(terms.has_value());
      if (plan == plans[0]) {
        first.push_back(*terms);
      } else {
        EXPECT_NEAR(terms->g2 / first[i].g2, 1, 0.01) << plan << " step " << i;
        EXPECT_NEAR(terms->s / first[i].s, 1, 0.01) << plan << " step " << i;
      }
    }
  }
}

// Returns the squared gradient norm of the watched scales for `samples` samples on one rank.
double scales_reference(const std::string& model, std::int64_t first, std::int64_t samples) {
  double sum = 0;
  run_ranks(1, [&](int, GroupCache& groups) {
    Result<Dataset> data = Dataset::open({"builtin"}, {.seq_len = 64, .seed = 7, .vocab = 251});
    auto trainer = Trainer::create(groups, frozen(model, "micro_batch=1", samples));
    ASSERT_TRUE(trainer.has_value()) << trainer.error().message;
    ASSERT_TRUE((*trainer)->step(*data, first).has_value());
    for (const auto& parameters : (*trainer)->parameters()) {
      for (const Bucket& bucket : parameters->buckets()) {
        for (const PlacedTensor& tensor : bucket.tensors) {
          // The model has eight layers. Every second one is watched.
          const std::string& name = tensor.spec.name;
          if (name != "final_norm.weight" && name != "layers.0.attention_norm.weight" &&
              name != "layers.2.attention_norm.weight" &&
              name != "layers.4.attention_norm.weight" &&
              name != "layers.6.attention_norm.weight") {
            continue;
          }
          const Tensor part = bucket.gradients.narrow(0, tensor.offset, tensor.size);
          sum += part.to(at::kDouble).square().sum().item<double>();
        }
      }
    }
  });
  return sum;
}

TEST(ScaleNorms, AreThoseOfSingleSamples) {
  constexpr std::int64_t kSamples = 8;
  const Case cases[] = {{"llama", "dp=2,pp=2,micro_batch=2"},
                        {"gpt2", "tp=2,pp=2,micro_batch=4"},
                        {"qwen3", "dp=4,zero=1,micro_batch=1"},
                        {"tied", "pp=4,micro_batch=2,recompute=full"}};
  for (const auto& [model, plan] : cases) {
    const std::vector<StepResult> results = steps(frozen(model, plan, kSamples), 3, 1);
    ASSERT_TRUE(results.at(0).norms.has_value());
    const std::vector<SquaredNorm>& scales = results[0].norms->scales;
    ASSERT_EQ(scales.size(), 2U) << plan;
    // Four samples of each replica are watched, or all if it has fewer.
    const int watched = std::string_view(plan).starts_with("dp=") ? 8 : 4;
    double each = 0;
    for (int i = 0; i < watched; ++i) each += scales_reference(model, 3 + i, 1) / watched;
    EXPECT_EQ(scales[0].batch, 1);
    EXPECT_EQ(scales[0].count, watched);
    EXPECT_NEAR(scales[0].value / each, 1, 1e-4) << model << " " << plan;
    EXPECT_EQ(scales[1].batch, kSamples);
    EXPECT_NEAR(scales[1].value / scales_reference(model, 3, kSamples), 1, 1e-4)
        << model << " " << plan;
  }
}

// With sequence parallelism, no rank has a whole sample, so there is no such estimate.
TEST(ScaleNorms, NoneUnderSequenceParallelism) {
  const std::vector<StepResult> results =
      steps(frozen("llama", "tp=2,sp=1,micro_batch=2", 8), 0, 1);
  ASSERT_TRUE(results.at(0).norms.has_value());
  EXPECT_TRUE(results[0].norms->scales.empty());
}

TEST(NoiseNorms, PrefixExistsWhereverTwoBatchSizesDo) {
  for (std::int64_t dp = 1; dp <= 8; dp *= 2) {
    for (std::int64_t tp = 1; dp * tp <= 8; tp *= 2) {
      for (std::int64_t micro_batch = 1; micro_batch <= 8; micro_batch *= 2) {
        for (std::int64_t m = 1; m <= 16; ++m) {
          ParallelPlan plan;
          plan.dp = dp;
          plan.tp = tp;
          plan.micro_batch = micro_batch;
          const std::int64_t prefix = noise_prefix(plan, dp * m * micro_batch);
          if (dp == 1 && m == 1) {
            EXPECT_EQ(prefix, 0);
          } else {
            EXPECT_GE(prefix, 1);
            EXPECT_LE(prefix, dp > 1 ? m : m - 1);
          }
        }
      }
    }
  }
}

TEST(DataHash, IsTheSameAtEveryLayoutAndBatch) {
  std::uint64_t expected = 0;
  for (const char* plan : {"dp=1,micro_batch=4", "dp=4,micro_batch=2", "pp=2,dp=2,micro_batch=1",
                           "tp=2,pp=2,micro_batch=2"}) {
    for (const std::int64_t batch : {8, 24}) {
      std::uint64_t hash = 0;
      const int count = static_cast<int>(48 / batch);
      for (const StepResult& step : steps(frozen("llama", plan, batch), 5, count)) {
        hash = add_hashes(hash, step.data_hash);
      }
      if (expected == 0) expected = hash;
      EXPECT_EQ(hash, expected) << plan << " batch " << batch;
    }
  }
  // Other samples give another sum.
  std::uint64_t other = 0;
  for (const StepResult& step : steps(frozen("llama", "dp=1,micro_batch=4", 8), 6, 6)) {
    other = add_hashes(other, step.data_hash);
  }
  EXPECT_NE(other, expected);
}

}  // namespace
}  // namespace copus
