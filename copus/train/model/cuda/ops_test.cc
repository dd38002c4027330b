// Compares each GPU operator with its definition in double precision on the CPU: the value and
// every gradient. The inputs are different in every run. Memory that a kernel should write holds
// NaN before.
#include "copus/train/model/cuda/ops.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "copus/train/device/device.h"

namespace copus {
namespace {

using Int = std::int64_t;
using Tensors = std::vector<Tensor>;
using Operator = std::function<Tensors(const Tensors&)>;
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

class CudaOps : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
    ASSERT_EQ(cuda::why_not({.cuda = true, .index = 0}), "");
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    const auto seed = std::random_device()();
    RecordProperty("seed", std::to_string(seed));
    generator_ = at::make_generator<at::CPUGeneratorImpl>(seed);
  }

  // Returns random doubles that `type` can represent.
  Tensor random(at::IntArrayRef shape, at::ScalarType type, double scale = 1) {
    return at::randn(shape, generator_, at::TensorOptions().dtype(at::kDouble))
        .mul_(scale)
        .to(type)
        .to(at::kDouble);
  }
  Tensor integers(Int count, Int below) {
    return at::randint(below, {count}, generator_, at::TensorOptions().dtype(at::kLong));
  }

  // Returns f's values, then the gradients of their weighted sum by every input.
  Tensors differentiate(const Operator& f, const Tensors& inputs, const Tensors& weights,
                        const at::TensorOptions& options) {
    Tensors leaves;
    for (const Tensor& input : inputs) {
      leaves.push_back(input.to(options).detach().requires_grad_(true));
    }
    Tensors result = f(leaves);
    torch::autograd::backward(result, [&] {
      Tensors slopes;
      for (std::size_t i = 0; i < result.size(); ++i) {
        slopes.push_back(weights[i].view(result[i].sizes()).to(result[i].options()));
      }
      return slopes;
    }());
    for (Tensor& value : result) value = value.detach();
    for (const Tensor& leaf : leaves) result.push_back(leaf.grad());
    return result;
  }

  // Checks f against its definition `truth`, and that a second call gives the same bits. `shapes`:
  // those of f's values.
  void expect_equal(const Operator& f, const Operator& truth, const Tensors& inputs,
                    const std::vector<std::vector<Int>>& shapes, at::ScalarType type,
                    double coarse = 1) {
    Tensors weights;
    for (const auto& shape : shapes) weights.push_back(random(shape, type));
    const auto there = at::TensorOptions().dtype(type).device(at::kCUDA);
    const Tensors got = differentiate(f, inputs, weights, there);
    const Tensors wanted = differentiate(truth, inputs, weights, at::kDouble);
    const Tensors again = differentiate(f, inputs, weights, there);
    ASSERT_EQ(got.size(), wanted.size());
    const double tolerance = (type == at::kBFloat16 ? 6e-3 : 3e-6) * coarse;
    for (std::size_t i = 0; i < got.size(); ++i) {
      expect_near(got[i], wanted[i], tolerance, static_cast<int>(i));
      EXPECT_TRUE(at::equal(got[i], again[i])) << "result " << i << ": not the same bits";
    }
  }

  static void expect_near(const Tensor& got, const Tensor& wanted, double tolerance, int which) {
    ASSERT_TRUE(got.defined()) << "result " << which;
    ASSERT_EQ(got.sizes(), wanted.sizes()) << "result " << which;
    const Tensor apart = got.cpu().to(at::kDouble) - wanted;
    const double error = apart.norm().item<double>(), size = wanted.norm().item<double>();
    EXPECT_LE(error, tolerance * size + 1e-30) << "result " << which << " of size " << size;
  }

  at::Generator generator_;
};

TEST_F(CudaOps, NormsAreTheirDefinition) {
  const double eps = 1e-5;
  const auto norm = [&](const Tensor& x, const Tensor& w) {
    return x * (x.square().mean(-1, true) + eps).rsqrt() * w;
  };
  for (const at::ScalarType type : kTypes) {
    for (const Int rows : {1, 3, 1500}) {
      for (const Int n : {7, 8, 64, 251, 768, 1001, 2048, 3072, 4100, 8192}) {
        SCOPED_TRACE(testing::Message() << type << " " << rows << " x " << n);
        const Tensors inputs{random({rows, n}, type), random({rows, n}, type), random({n}, type)};
        expect_equal([&](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], eps)}; },
                     [&](const Tensors& in) { return Tensors{norm(in[0], in[1])}; },
                     {inputs[0], inputs[2]}, {{rows, n}}, type, 1.5);
        expect_equal(
            [&](const Tensors& in) {
              const SumAndNorm both = add_rms_norm(in[0], in[1], in[2], eps);
              return Tensors{both.sum, both.norm};
            },
            [&](const Tensors& in) {
              // The operator rounds the sum before it takes the norm, so the definition does too.
              const Tensor sum = in[0] + in[1];
              const Tensor error = (sum.detach().to(type).to(at::kDouble) - sum.detach());
              return Tensors{sum + error, norm(sum + error, in[2])};
            },
            inputs, {{rows, n}, {rows, n}}, type, 1.5);
      }
    }
  }
}

TEST_F(CudaOps, GatesAreTheirDefinition) {
  for (const at::ScalarType type : kTypes) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (const Int n : {1, 15, 64, 177, 2048, 5632}) {
        SCOPED_TRACE(testing::Message() << type << " " << n);
        expect_equal([&](const Tensors& in) { return Tensors{gated(in[0], activation)}; },
                     [&](const Tensors& in) {
                       const Tensors halves = in[0].chunk(2, -1);
                       const Tensor curve = activation == Activation::kSilu
                                                ? at::silu(halves[0])
                                                : at::gelu(halves[0], "tanh");
                       return Tensors{curve * halves[1]};
                     },
                     {random({37, 2 * n}, type, 3)}, {{37, n}}, type);
      }
    }
  }
}

TEST_F(CudaOps, HeadsAreSplitAndTurned) {
  struct Shape {
    Int batch, length, heads, kv, d;
  };
  for (const at::ScalarType type : kTypes) {
    for (const Shape& s : {Shape{1, 1, 1, 1, 2}, Shape{2, 5, 3, 1, 6}, Shape{3, 33, 4, 2, 16},
                           Shape{2, 64, 12, 12, 64}, Shape{2, 17, 8, 2, 128}}) {
      for (const bool turns : {true, false}) {
        SCOPED_TRACE(testing::Message() << type << " " << s.heads << " heads of " << s.d);
        const Tensor angles = at::rand({s.length, s.d / 2}, generator_, at::kFloat) * 6;
        const Tensor cosines = angles.cos(), sines = angles.sin();
        const RotaryTable table =
            turns ? RotaryTable{cosines.to(at::kCUDA), sines.to(at::kCUDA)} : RotaryTable{};
        const auto turn = [&](const Tensor& x) {
          if (!turns) return x;
          const Tensors halves = x.chunk(2, 3);
          const Tensor c = cosines.to(at::kDouble).unsqueeze(1),
                       t = sines.to(at::kDouble).unsqueeze(1);
          return at::cat({halves[0] * c - halves[1] * t, halves[1] * c + halves[0] * t}, 3);
        };
        expect_equal(
            [&](const Tensors& in) {
              const cuda::QueryKeyValue parts = cuda::split_heads(in[0], s.heads, s.kv, table);
              return Tensors{parts.q, parts.k, parts.v};
            },
            [&](const Tensors& in) {
              const Tensors parts = in[0]
                                        .unflatten(-1, {s.heads + 2 * s.kv, s.d})
                                        .split_with_sizes({s.heads, s.kv, s.kv}, 2);
              return Tensors{turn(parts[0]), turn(parts[1]), parts[2]};
            },
            {random({s.batch, s.length, (s.heads + 2 * s.kv) * s.d}, type)},
            {{s.batch, s.length, s.heads, s.d},
             {s.batch, s.length, s.kv, s.d},
             {s.batch, s.length, s.kv, s.d}},
            type);
      }
    }
  }
}

TEST_F(CudaOps, AttentionIsItsDefinition) {
  for (const at::ScalarType type : kTypes) {
    for (const Int kv : {1, 2, 4}) {
      const Int batch = 2, length = 96, heads = 4, d = 64;
      SCOPED_TRACE(testing::Message() << type << " " << kv);
      expect_equal(
          [&](const Tensors& in) { return Tensors{self_attention(in[0], heads, kv, {})}; },
          [&](const Tensors& in) {
            const Tensors parts =
                in[0].unflatten(-1, {heads + 2 * kv, d}).split_with_sizes({heads, kv, kv}, 2);
            const Tensor q = parts[0].transpose(1, 2);
            const Tensor k = parts[1].transpose(1, 2).repeat_interleave(heads / kv, 1);
            const Tensor v = parts[2].transpose(1, 2).repeat_interleave(heads / kv, 1);
            const Tensor mask =
                at::full({length, length}, -std::numeric_limits<double>::infinity(), at::kDouble)
                    .triu_(1);
            const Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(d) + mask;
            return Tensors{
                at::matmul(scores.softmax(-1), v).transpose(1, 2).reshape({batch, length, -1})};
          },
          {random({batch, length, (heads + 2 * kv) * d}, type)}, {{batch, length, heads * d}}, type,
          type == at::kFloat ? 500 : 2);  // a library may compute FP32 products in TF32
    }
  }
}

// As in the engine, a BF16 leaf has an FP32 gradient, and every pass adds to it.
TEST_F(CudaOps, LinearLayersAddTheirWeightsGradientInFp32) {
  const auto there = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  for (const Int rows : {1, 7, 256}) {
    for (const Int in : {3, 64, 129}) {
      for (const Int out : {1, 40, 128}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << in << " -> " << out);
        const Tensor w = random({out, in}, at::kBFloat16);
        const Tensor weight = w.to(there).requires_grad_(true);
        weight.mutable_grad() =
            at::zeros({out, in}, at::TensorOptions(at::kFloat).device(at::kCUDA));
        Tensor wanted = at::zeros({out, in}, at::kDouble);
        for (int pass = 0; pass < 3; ++pass) {
          const Tensor x = random({2, rows, in}, at::kBFloat16);
          const Tensor slope = random({2, rows, out}, at::kBFloat16);
          const Tensor input = x.to(there).requires_grad_(true);
          const Tensor y = linear_layer(input, weight);
          torch::autograd::backward({y}, {slope.to(there)});
          wanted += at::matmul(slope.flatten(0, 1).t(), x.flatten(0, 1));
          expect_near(y.detach(), at::matmul(x, w.t()), 6e-3, 0);
          expect_near(input.grad(), at::matmul(slope, w), 6e-3, 1);
        }
        ASSERT_EQ(weight.grad().scalar_type(), at::kFloat);
        expect_near(weight.grad(), wanted, 1e-5, 2);
      }
    }
  }
}

TEST_F(CudaOps, CrossEntropyIsItsDefinition) {
  for (const at::ScalarType type : kTypes) {
    for (const Int classes : {1, 3, 8, 251, 4096, 50257}) {
      for (const double scale : {1.0, 30.0}) {
        SCOPED_TRACE(testing::Message() << type << " " << classes << " classes, " << scale);
        const Int rows = 19;
        const Tensor targets = integers(rows, classes);
        expect_equal(
            [&](const Tensors& in) {
              return Tensors{cross_entropy(in[0] * 1, targets.to(at::kCUDA))};
            },
            [&](const Tensors& in) {
              return Tensors{
                  at::log_softmax(in[0], 1).gather(1, targets.unsqueeze(1)).mean().neg()};
            },
            {random({rows, classes}, type, scale)}, {{}}, type, classes == 1 ? 1e30 : 4);
      }
    }
  }
}

TEST_F(CudaOps, CrossEntropyOfPartsIsThatOfTheWhole) {
  const Int rows = 23, classes = 1003, cut = 400;
  const Tensor logits = random({rows, classes}, at::kBFloat16, 5),
               targets = integers(rows, classes);
  const Tensor there = logits.to(at::kBFloat16).to(at::kCUDA), labels = targets.to(at::kCUDA);
  const Tensor left = there.narrow(1, 0, cut).contiguous();
  const Tensor right = there.narrow(1, cut, classes - cut).contiguous();
  const cuda::RowStatistics a = cuda::row_statistics(left, labels, 0);
  const cuda::RowStatistics b = cuda::row_statistics(right, labels, cut);
  const Tensor largest = at::maximum(a.largest, b.largest);
  const Tensor sum = a.sum * (a.largest - largest).exp() + b.sum * (b.largest - largest).exp();
  const Tensor log_sums = sum.log() + largest;
  const Tensor wanted = at::log_softmax(logits, 1);
  expect_near((a.target + b.target - log_sums), wanted.gather(1, targets.unsqueeze(1)).squeeze(1),
              1e-5, 0);
  const Tensor scale = at::full({}, 3.0, at::TensorOptions(at::kFloat).device(at::kCUDA));
  cuda::to_loss_gradient(left, labels, 0, log_sums, scale);
  cuda::to_loss_gradient(right, labels, cut, log_sums, scale);
  const Tensor gradient =
      (wanted.exp() - at::one_hot(targets, classes).to(at::kDouble)) * 3.0 / rows;
  expect_near(at::cat({left, right}, 1), gradient, 6e-3, 1);
}

TEST_F(CudaOps, ATargetThatIsNoClassMakesTheLossNaN) {
  const Tensor logits = at::zeros({2, 5}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  for (const Int wrong : {-1, 5, 1000000}) {
    const Tensor targets = at::full({2}, 1, at::kLong);
    targets[1] = wrong;
    EXPECT_TRUE(std::isnan(cross_entropy(logits, targets.to(at::kCUDA)).item<float>())) << wrong;
  }
}

TEST_F(CudaOps, NotANumberStaysOne) {
  const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const Tensor logits = at::zeros({1, 64}, options);
  logits[0][17] = std::numeric_limits<float>::quiet_NaN();
  const Tensor target = at::zeros({1}, options.dtype(at::kLong));
  EXPECT_TRUE(std::isnan(cross_entropy(logits, target).item<float>()));
  EXPECT_TRUE(at::isnan(rms_norm(logits, at::ones({64}, options), 1e-5)).all().item<bool>());
}

TEST_F(CudaOps, AdamWIsItsDefinition) {
  const auto there = at::TensorOptions(at::kFloat).device(at::kCUDA);
  for (const Int n : {1, 3, 4, 1027, 1 << 20}) {
    SCOPED_TRACE(n);
    const Tensor w = random({n}, at::kFloat), m = random({n}, at::kFloat, 0.1),
                 v = random({n}, at::kFloat).square_(), g = random({n}, at::kFloat);
    const cuda::AdamRates rates{.beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .keep = 0.999,
                                .lr = 1e-3,
                                .root_correction2 = 0.7,
                                .gradient_scale = 0.5};
    const Tensor values = w.to(there), moment1 = m.to(there), moment2 = v.to(there);
    const Tensor low = at::empty({n}, there.dtype(at::kBFloat16));
    cuda::adamw(rates, values, g.to(there), moment1, moment2, low);
    const Tensor m1 = m + 0.1 * (g * 0.5 - m),
                 v1 = v.to(at::kFloat).to(at::kDouble) * 0.95 + 0.05 * (g * 0.5).square();
    expect_near(moment1, m1, 1e-6, 0);
    expect_near(moment2, v1, 1e-6, 1);
    expect_near(values, w * 0.999 - 1e-3 * m1 / (v1.sqrt() / 0.7 + 1e-8), 1e-6, 2);
    EXPECT_TRUE(at::equal(low, values.to(at::kBFloat16)));
  }
}

TEST_F(CudaOps, SquaresAreSummedInDouble) {
  for (const Int n : {1, 5, 4096, 1000003, 1 << 25}) {
    const Tensor x = random({n}, at::kFloat);
    const Tensor total = at::full({}, 2.0, at::TensorOptions(at::kDouble).device(at::kCUDA));
    cuda::add_squares(x.to(at::kFloat).to(at::kCUDA), total);
    const double wanted = 2 + x.square().sum().item<double>();
    EXPECT_NEAR(total.item<double>(), wanted, 1e-12 * wanted) << n;
  }
}

}  // namespace
}  // namespace copus
