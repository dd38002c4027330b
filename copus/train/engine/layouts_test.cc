// The layout must not change the result. Eight ranks train the same model on the same samples at
// each layout. They must have the losses of one rank, and end with its weights.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>

#include "copus/train/comm/rank_threads.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/model/test_models.h"

namespace copus {
namespace {

constexpr int kSteps = 30;
constexpr double kLossTolerance = 1e-4;  // relative
constexpr double kNormTolerance =
    2e-3;  // relative; with another libtorch or -O1, the eighth step differs by 1e-3
constexpr double kWeightTolerance = 1e-3;  // of the tensor's largest weight

using testing_models::llama;
using testing_models::model_named;

struct Trajectory {
  std::vector<double> losses, norms;
  double held_out = 0;
  std::map<std::string, Tensor> weights;  // whole tensors by name
};

// Copies a rank's parts of all tensors to their places in the whole tensors.
void collect_weights(const Trainer& trainer, std::map<std::string, Tensor>& whole) {
  for (const auto& parameters : trainer.parameters()) {
    for (const Bucket& bucket : parameters->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        Tensor& all = whole[tensor.spec.name];
        if (!all.defined()) all = at::full(tensor.spec.shape, NAN);
        const std::int64_t dim = tensor.spec.cut == Cut::kColumns ? 1 : 0;
        const Tensor part = bucket.values.narrow(0, tensor.offset, tensor.size)
                                .view(local_shape(tensor.spec, tensor.shard));
        const Tensor place = all.narrow(dim, tensor.shard.begin, tensor.shard.length);
        const Tensor mine = part.narrow(dim, 0, tensor.shard.length).to(at::kFloat);
        // All ranks that hold this part must hold the same values.
        if (at::isfinite(place).all().item<bool>()) {
          EXPECT_TRUE(at::allclose(place, mine, 1e-4, 1e-6)) << tensor.spec.name;
        }
        place.copy_(mine);
      }
    }
  }
}

Trajectory train(const ModelSpec& model, const std::string& plan_text,
                 Compute compute = Compute::kFp32) {
  Result<PartialPlan> plan = parse_plan_text(plan_text, "--plan");
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  TrainerOptions options;
  options.model = model;
  options.plan = plan->plan;
  options.compute = compute;
  options.seq_len = 16;
  options.global_batch = 16;
  options.lr = {.peak = 3e-3, .floor = 3e-4, .warmup_samples = 80, .decay_samples = 480};
  options.bucket_elements = 4000;  // several buckets
  Trajectory result;
  std::mutex mutex;
  run_ranks(static_cast<int>(options.plan.gpus()), [&](int rank, GroupCache& groups) {
    Result<Dataset> data = Dataset::open({"builtin"}, {.seq_len = 16, .seed = 7, .vocab = 251});
    ASSERT_TRUE(data.has_value()) << data.error().message;
    Result<std::unique_ptr<Trainer>> trainer = Trainer::create(groups, options);
    ASSERT_TRUE(trainer.has_value()) << trainer.error().message;
    for (int step = 0; step < kSteps; ++step) {
      const Result<StepResult> done = (*trainer)->step(*data, step * options.global_batch);
      ASSERT_TRUE(done.has_value()) << done.error().message;
      ASSERT_EQ(done->not_finite, "");
      if (rank == 0) {
        result.losses.push_back(done->loss);
        result.norms.push_back(done->grad_norm);
      }
    }
    // 21 is odd, so at every layout whose passes take several sequences some are left over.
    const std::atomic<bool> stop{false};
    const Result<std::optional<double>> held_out = (*trainer)->evaluate(*data, 21, stop);
    ASSERT_TRUE(held_out.has_value()) << held_out.error().message;
    const std::lock_guard<std::mutex> lock(mutex);
    result.held_out = held_out->value();
    collect_weights(**trainer, result.weights);
  });
  return result;
}

// Returns one rank's trajectory. Trains it once per model.
const Trajectory& reference(const std::string& which) {
  static std::map<std::string, Trajectory> known;
  const auto found = known.find(which);
  if (found != known.end()) return found->second;
  const ModelSpec model = model_named(which);
  return known.emplace(which, train(model, "micro_batch=4")).first->second;
}

struct Layout {
  const char* model;
  const char* plan;
};
void PrintTo(const Layout& l, std::ostream* out) { *out << l.model << " " << l.plan; }

class Layouts : public ::testing::TestWithParam<Layout> {};

TEST_P(Layouts, FollowOneRanksLossesAndEndAtItsWeights) {
  const std::string which = GetParam().model;
  const ModelSpec model = model_named(which);
  const Trajectory& one = reference(which);
  ASSERT_EQ(one.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(one.losses.back(), one.losses.front() - 0.5) << "the reference must learn";
  const Trajectory many = train(model, GetParam().plan);
  ASSERT_EQ(many.losses.size(), static_cast<std::size_t>(kSteps));
  for (int i = 0; i < kSteps; ++i) {
    const auto step = static_cast<std::size_t>(i);
    EXPECT_NEAR(many.losses[step], one.losses[step], kLossTolerance * one.losses[step])
        << "step " << i;
    EXPECT_NEAR(many.norms[step], one.norms[step], kNormTolerance * one.norms[step])
        << "step " << i;
  }
  EXPECT_NEAR(many.held_out, one.held_out, kLossTolerance * one.held_out);
  ASSERT_EQ(many.weights.size(), one.weights.size());
  for (const auto& [name, weight] : one.weights) {
    const Tensor& other = many.weights.at(name);
    const double largest = weight.abs().max().item<double>();
    const double apart = (other - weight).abs().max().item<double>();
    EXPECT_LE(apart, kWeightTolerance * std::max(largest, 1e-2)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    EightRanks, Layouts,
    ::testing::Values(
        // Every factorisation of 8 into dp, tp and pp.
        Layout{"llama", "dp=8"}, Layout{"llama", "tp=8,micro_batch=8"}, Layout{"llama", "pp=8"},
        Layout{"llama", "dp=4,tp=2,micro_batch=2"}, Layout{"llama", "dp=4,pp=2"},
        Layout{"llama", "dp=2,tp=4,micro_batch=4"}, Layout{"llama", "dp=2,pp=4,micro_batch=2"},
        Layout{"llama", "tp=4,pp=2,micro_batch=4"}, Layout{"llama", "tp=2,pp=4,micro_batch=4"},
        Layout{"llama", "dp=2,tp=2,pp=2,micro_batch=2"},
        // Layouts with ZeRO-1, sequence parallelism, recompute, schedules, splits; other models.
        Layout{"llama", "dp=8,zero=1"}, Layout{"llama", "dp=2,tp=2,pp=2,zero=1,sp=1,micro_batch=2"},
        Layout{"llama", "tp=8,sp=1,micro_batch=8"},
        Layout{"llama", "dp=2,tp=4,sp=1,recompute=full,micro_batch=4"},
        Layout{"llama", "dp=4,tp=2,recompute=selective,zero=1,micro_batch=4"},
        Layout{"llama", "dp=2,pp=2,tp=2,recompute=full,schedule=gpipe,micro_batch=2"},
        Layout{"llama", "pp=4,vp=2,dp=2,schedule=interleaved"},
        Layout{"llama", "pp=2,vp=2,dp=2,tp=2,schedule=interleaved,zero=1,sp=1,micro_batch=2"},
        Layout{"llama", "pp=4,dp=2,split=1-3-3-1"}, Layout{"tied", "dp=2,tp=2,pp=2,micro_batch=2"},
        Layout{"tied", "dp=2,pp=4,zero=1,split=3-2-2-1"},
        Layout{"tied", "pp=2,vp=4,dp=4,schedule=interleaved"},
        Layout{"tied", "pp=2,vp=2,tp=2,dp=2,sp=1,zero=1,micro_batch=2"},
        Layout{"gpt2", "tp=2,pp=2,dp=2,sp=1,recompute=full,micro_batch=2,zero=1"},
        Layout{"gpt2", "pp=4,dp=2,split=0-4-4-0,micro_batch=8"},
        Layout{"qwen3", "pp=2,tp=2,dp=2,zero=1,recompute=selective,micro_batch=2"},
        Layout{"gpt2", "dp=2,tp=2,pp=2,zero=1,micro_batch=4"},
        Layout{"gpt2", "tp=4,pp=2,sp=1,micro_batch=4"}, Layout{"gpt2", "dp=8"},
        Layout{"gpt2", "tp=8,micro_batch=16"}, Layout{"gpt2", "pp=8"},
        Layout{"qwen3", "tp=4,dp=2,micro_batch=8"}, Layout{"qwen3", "tp=8,sp=1,micro_batch=8"}));

// The gradient of the first layer's norm is one of the last of the backward pass. Before it, the
// reduction of other buckets must have started.
TEST(DataParallel, ReductionStartsBeforeTheBackwardPassEnds) {
  for (const char* text : {"dp=2,micro_batch=4", "dp=2,micro_batch=4,zero=1"}) {
    run_ranks(2, [&](int, GroupCache& groups) {
      TrainerOptions options;
      options.model = llama();
      options.plan = parse_plan_text(text, "--plan")->plan;
      options.seq_len = 16;
      options.global_batch = 16;
      options.bucket_elements = 4000;
      const Result<Dataset> data = Dataset::open({"builtin"}, {.seq_len = 16, .vocab = 251});
      const Result<std::unique_ptr<Trainer>> trainer = Trainer::create(groups, options);
      ASSERT_TRUE(data.has_value() && trainer.has_value());
      const Comm& dp = *(*trainer)->mesh().dp;
      std::vector<std::int64_t> started;  // operations before that gradient, per backward pass
      (*trainer)->parameters()[0]->values()[1].register_hook([&](const Tensor& gradient) {
        started.push_back(dp.started());
        return gradient;
      });
      ASSERT_TRUE((*trainer)->step(*data, 0).has_value());
      ASSERT_EQ(started.size(), 2U);  // one per micro-batch
      EXPECT_EQ(started[0], 0) << "nothing is reduced before the last micro-batch";
      EXPECT_GT(started[1], 3) << "of " << (*trainer)->parameters()[0]->buckets().size();
    });
  }
}

// BF16 rounds to 0.4%. So BF16 losses must agree with FP32 losses, at each layout, to about 1%.
TEST(Bf16, FollowsFp32AtEveryKindOfLayout) {
  const Trajectory one = reference("llama");
  for (const char* plan : {"micro_batch=4", "dp=2,tp=2,pp=2,zero=1,sp=1,micro_batch=2"}) {
    const Trajectory rounded = train(llama(), plan, Compute::kBf16);
    ASSERT_EQ(rounded.losses.size(), one.losses.size()) << plan;
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(rounded.losses[i], one.losses[i], 0.01 * one.losses[i]) << plan << " step " << i;
    }
  }
}

}  // namespace
}  // namespace copus
