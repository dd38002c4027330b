// Compares each operator with a plain composition in double precision: the value and all gradients.
#include "copus/train/model/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace copus {
namespace {

using Int = std::int64_t;
constexpr double kTolerance = 1e-6;  // of the tensor's largest element

Tensor random(at::IntArrayRef shape, std::uint64_t seed, double scale = 1) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat)).mul_(scale);
}

struct Outcome {
  Tensor value;
  std::vector<Tensor> gradients;  // undefined for inputs whose gradient was not wanted
};

// Returns f's value, and the gradients of sum(value * weights) by the inputs whose bit in `wanted`
// is set.
Outcome differentiate(const TensorFunction& f, const std::vector<Tensor>& inputs, unsigned wanted,
                      at::ScalarType dtype = at::kFloat) {
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // The leaf has the strides of the input.
    const Tensor leaf =
        at::empty_strided(inputs[i].sizes(), inputs[i].strides(), at::TensorOptions().dtype(dtype));
    leaf.copy_(inputs[i]);
    leaves.push_back(leaf.detach().requires_grad_((wanted >> i & 1) != 0));
  }
  Outcome result{f(leaves), {}};
  if (wanted != 0) {
    const Tensor weights = random(result.value.sizes(), 99).to(result.value.scalar_type());
    torch::autograd::backward({(result.value * weights).sum()});
  }
  result.value = result.value.detach();
  for (const Tensor& leaf : leaves) result.gradients.push_back(leaf.grad());
  return result;
}

void expect_close(const Tensor& got, const Tensor& truth, double tolerance, const char* what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), truth.sizes()) << what;
  const double largest = truth.abs().max().item<double>();
  const double apart = (got.to(at::kDouble) - truth.to(at::kDouble)).abs().max().item<double>();
  // If the truth is (almost) zero, it is a difference of larger numbers, so the error is absolute.
  EXPECT_LE(apart, largest > 1e-5 ? tolerance * largest : 1e-6) << what;
}

void expect_same(const Outcome& a, const Outcome& b, const char* what) {
  EXPECT_TRUE(at::equal(a.value, b.value)) << what;
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << what << ", input " << i;
    if (!a.gradients[i].defined()) continue;
    EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << what << ", input " << i;
  }
}

// Checks f against its definition `truth`. Also checks that f gives the same bits if only some
// gradients are wanted, without a graph, if it is recomputed, and with two threads.
void expect_lawful(const TensorFunction& f, const TensorFunction& truth,
                   const std::vector<Tensor>& inputs, double tolerance = kTolerance) {
  const unsigned all = (1U << inputs.size()) - 1;
  const Outcome exact = differentiate(truth, inputs, all, at::kDouble);
  const Outcome full = differentiate(f, inputs, all);
  expect_close(full.value, exact.value, tolerance, "value");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expect_close(full.gradients[i], exact.gradients[i], tolerance,
                 ("gradient of input " + std::to_string(i)).c_str());
  }
  for (unsigned wanted = 1; wanted < all; ++wanted) {
    Outcome some = full;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if ((wanted >> i & 1) == 0) some.gradients[i] = Tensor();
    }
    expect_same(differentiate(f, inputs, wanted), some, "gradients of some inputs");
  }
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(f(inputs), full.value)) << "without a graph";
  }
  expect_same(
      differentiate([&](const std::vector<Tensor>& in) { return recomputed(f, in); }, inputs, all),
      full, "recomputed");
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = differentiate(f, inputs, all);
  at::set_num_threads(2);
  expect_same(differentiate(f, inputs, all), one, "two threads");
  at::set_num_threads(threads);
}

TEST(RmsNorm, EqualsItsDefinition) {
  const double eps = 1e-5;
  for (const Int rows : {1, 3, 1000}) {
    for (const Int n : {3, 7, 16, 128, 251}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << n);
      expect_lawful([&](const auto& in) { return rms_norm(in[0], in[1], eps); },
                    [&](const auto& in) {
                      const Tensor mean = in[0].square().mean(-1, true);
                      return in[0] * (mean + eps).rsqrt() * in[1];
                    },
                    {random({1, rows, n}, 1), random({n}, 2)}, 3e-6);
    }
  }
}

TEST(Gated, EqualsItsDefinition) {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    const auto curve = [&](const Tensor& x) {
      if (activation == Activation::kSilu) return at::silu(x);
      return at::gelu(x, activation == Activation::kGeluTanh ? "tanh" : "none");
    };
    for (const Int n : {1, 15, 64, 177}) {
      SCOPED_TRACE(n);
      expect_lawful([&](const auto& in) { return activate(in[0], activation); },
                    [&](const auto& in) { return curve(in[0]); }, {random({9, n}, 1, 3)});
      expect_lawful(
          [&](const auto& in) { return gated(in[0], activation); },
          [&](const auto& in) { return curve(in[0].narrow(-1, 0, n)) * in[0].narrow(-1, n, n); },
          {random({2, 300, 2 * n}, 1, 3)});
    }
  }
}

TEST(Gated, StaysFiniteFarFromZero) {
  const Tensor x = at::tensor({-1e4F, -100.0F, -80.0F, 0.0F, 80.0F, 1e4F, 1.0F, 1.0F});
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const Outcome got =
        differentiate([&](const auto& in) { return activate(in[0], activation); }, {x}, 1);
    EXPECT_TRUE(at::isfinite(got.value).all().item<bool>());
    EXPECT_TRUE(at::isfinite(got.gradients[0]).all().item<bool>());
    EXPECT_EQ(got.value[5].item<float>(), 1e4F);
  }
}

ModelSpec with_head_dim(Int d) {
  ModelSpec model;
  model.head_dim = d;
  return model;
}

Tensor plain_rotation(const Tensor& x, const RotaryTable& table) {
  const Int length = x.size(1), half = x.size(3) / 2;
  const auto wide = [&](const Tensor& t) {
    return t.narrow(0, 0, length).view({1, length, 1, half}).to(x.scalar_type());
  };
  const Tensor c = wide(table.cosines), s = wide(table.sines);
  const Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  return at::cat({first * c - second * s, second * c + first * s}, 3);
}

Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Int length = q.size(1), group = q.size(2) / k.size(2);
  const auto by_head = [](const Tensor& x) { return x.transpose(1, 2); };
  const Tensor keys = by_head(k).repeat_interleave(group, 1);
  const Tensor values = by_head(v).repeat_interleave(group, 1);
  const Tensor mask =
      at::full({length, length}, -std::numeric_limits<double>::infinity(), q.options()).triu(1);
  const Tensor scores =
      at::matmul(by_head(q), keys.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  return at::matmul((scores + mask).softmax(-1), values).transpose(1, 2).flatten(2);
}

TEST(Rotate, EqualsItsDefinition) {
  for (const Int d : {2, 6, 32}) {
    const RotaryTable table = rotary_table(with_head_dim(d), 40, at::kCPU);
    const Tensor qkv = random({2, 33, 5, d}, 1);
    for (const Tensor& x : {qkv, qkv.narrow(2, 1, 3), qkv.narrow(1, 0, 1)}) {
      expect_lawful([&](const auto& in) { return rotate(in[0], table); },
                    [&](const auto& in) { return plain_rotation(in[0], table); }, {x});
    }
  }
}

struct Shape {
  Int batch, length, heads, kv, d;
};

class Attention : public testing::TestWithParam<Shape> {};

TEST_P(Attention, EqualsItsDefinition) {
  const auto [batch, length, heads, kv, d] = GetParam();
  const Tensor qkv = random({batch, length, heads + 2 * kv, d}, 1);
  expect_lawful([](const auto& in) { return causal_attention(in[0], in[1], in[2]); },
                [](const auto& in) { return plain_attention(in[0], in[1], in[2]); },
                {qkv.narrow(2, 0, heads).contiguous(), qkv.narrow(2, heads, kv).contiguous(),
                 qkv.narrow(2, heads + kv, kv).contiguous()},
                2e-6);
}

// The model calls it with three views of one projection's output.
TEST_P(Attention, TakesViewsOfOneTensor) {
  const auto shape = GetParam();
  const auto parts = [&](const Tensor& x, auto attend) {
    return attend(x.narrow(2, 0, shape.heads), x.narrow(2, shape.heads, shape.kv),
                  x.narrow(2, shape.heads + shape.kv, shape.kv));
  };
  expect_lawful([&](const auto& in) { return parts(in[0], causal_attention); },
                [&](const auto& in) { return parts(in[0], plain_attention); },
                {random({shape.batch, shape.length, shape.heads + 2 * shape.kv, shape.d}, 1)},
                2e-6);
}

TEST_P(Attention, OfOneTensorTurnsQueriesAndKeys) {
  const auto [batch, length, heads, kv, d] = GetParam();
  if (d % 2 != 0) return;
  for (const bool turns : {true, false}) {
    const RotaryTable table =
        turns ? rotary_table(with_head_dim(d), length, at::kCPU) : RotaryTable();
    expect_lawful(
        [&, h = heads, n = kv](const auto& in) { return self_attention(in[0], h, n, table); },
        [&, h = heads, n = kv](const auto& in) {
          const Tensor x = in[0].unflatten(-1, {h + 2 * n, -1});
          Tensor q = x.narrow(2, 0, h), k = x.narrow(2, h, n);
          if (turns) {
            q = plain_rotation(q, table);
            k = plain_rotation(k, table);
          }
          return plain_attention(q, k, x.narrow(2, h + n, n));
        },
        {random({batch, length, (heads + 2 * kv) * d}, 1)}, 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Shape{1, 1, 1, 1, 1}, Shape{2, 1, 3, 1, 8},
                                         Shape{1, 17, 2, 2, 5}, Shape{2, 64, 4, 2, 16},
                                         Shape{1, 65, 6, 2, 32}, Shape{1, 200, 2, 1, 64},
                                         Shape{3, 31, 8, 4, 4}, Shape{1, 130, 1, 1, 100}));

TEST(Attention, NeverLooksAhead) {
  const Tensor q = random({1, 100, 2, 16}, 1), k = random({1, 100, 2, 16}, 2);
  const Tensor v = random({1, 100, 2, 16}, 3);
  const Tensor before = causal_attention(q, k, v);
  k.narrow(1, 70, 30).fill_(NAN);
  v.narrow(1, 70, 30).fill_(5);
  EXPECT_TRUE(at::equal(causal_attention(q, k, v).narrow(1, 0, 70), before.narrow(1, 0, 70)));
}

TEST(Attention, TakesLargeScores) {
  const Tensor q = random({1, 40, 2, 16}, 1, 30), k = random({1, 40, 2, 16}, 2, 30);
  const Tensor v = random({1, 40, 2, 16}, 3);
  expect_close(causal_attention(q, k, v),
               plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble)), 1e-3,
               "value");
}

TEST(CrossEntropy, EqualsItsDefinition) {
  for (const Int classes : {1, 7, 16, 256, 1003}) {
    for (const double scale : {1.0, 20.0}) {
      const Tensor targets = at::arange(90, at::kLong).remainder(classes);
      expect_lawful([&](const auto& in) { return cross_entropy(in[0], targets); },
                    [&](const auto& in) { return at::cross_entropy_loss(in[0], targets); },
                    {random({90, classes}, 1, scale)}, 2e-6);
    }
  }
}

TEST(CrossEntropy, RefusesATargetThatIsNoClass) {
  const Tensor targets = at::tensor({0, 3}, at::kLong);
  EXPECT_THROW(cross_entropy(random({2, 3}, 1), targets), c10::Error);
}

TEST(CrossEntropy, IsNotANumberWhereALogitIsNot) {
  Tensor logits = random({2, 30}, 1);
  logits[1][17] = NAN;
  EXPECT_TRUE(std::isnan(cross_entropy(logits, at::tensor({0, 3}, at::kLong)).item<float>()));
}

TEST(Linear, EqualsItsDefinition) {
  const std::vector<Tensor> inputs{random({2, 9, 20}, 1), random({12, 20}, 2), random({12}, 3)};
  expect_lawful([](const auto& in) { return linear_layer(in[0], in[1], in[2]); },
                [](const auto& in) { return at::linear(in[0], in[1], in[2]); }, inputs);
  expect_lawful([](const auto& in) { return linear_layer(in[0], in[1]); },
                [](const auto& in) { return at::linear(in[0], in[1]); }, {inputs[0], inputs[1]});
}

TEST(Embedding, EqualsItsDefinition) {
  const Tensor tokens = at::tensor({3, 0, 3, 6}, at::kLong).view({2, 2});
  expect_lawful([&](const auto& in) { return embed_rows(in[0], tokens); },
                [&](const auto& in) { return at::embedding(in[0], tokens); }, {random({7, 5}, 1)});
}

struct Count : torch::autograd::FunctionPostHook {
  explicit Count(int* to) : calls(to) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++*calls;
    return outputs;
  }
  int* calls;
};

// The engine's buckets rely on two facts: the gradient buffer stays at its address, and the hook is
// called once, after all uses of the leaf have added to the buffer.
TEST(Linear, AddsToTheLeafsBufferAndCallsItsHookOnce) {
  Tensor table = random({7, 5}, 1).requires_grad_(true);
  const Tensor buffer = at::ones({7, 5});
  table.mutable_grad() = buffer;
  int calls = 0;
  const auto accumulator = torch::autograd::impl::grad_accumulator(table);
  accumulator->add_post_hook(std::make_unique<Count>(&calls));
  const Tensor tokens = at::tensor({3, 0, 3, 6}, at::kLong);
  for (int pass = 1; pass <= 2; ++pass) {
    torch::autograd::backward({linear_layer(embed_rows(table, tokens), table).square().sum()});
    EXPECT_EQ(calls, pass);
  }
  Tensor plain = table.detach().clone().requires_grad_(true);
  torch::autograd::backward({at::linear(at::embedding(plain, tokens), plain).square().sum()});
  EXPECT_EQ(table.grad().data_ptr(), buffer.data_ptr());
  expect_close(buffer, plain.grad() * 2 + 1, kTolerance, "two passes");
}

// BF16 tensors on a CPU go through ATen, since the CPU kernels are for FP32 only.
TEST(Bfloat16, WorksEverywhere) {
  const auto narrow = [](const Tensor& x) { return x.to(at::kBFloat16).requires_grad_(true); };
  const Tensor x = narrow(random({2, 16, 6 * 8}, 1));
  const RotaryTable table = rotary_table(with_head_dim(8), 16, at::kCPU);
  const Tensor weight = narrow(random({32, 32}, 2, 0.1)), scale = narrow(random({32}, 3));
  const Tensor mixed = rms_norm(self_attention(x, 4, 1, table), scale, 1e-5);
  const Tensor hidden = gated(linear_layer(mixed, weight), Activation::kSilu);
  const Tensor loss = cross_entropy(hidden.flatten(0, 1), at::arange(32, at::kLong).remainder(16));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  torch::autograd::backward({loss});
  for (const Tensor& leaf : {x, weight, scale}) {
    ASSERT_TRUE(leaf.grad().defined());
    EXPECT_EQ(leaf.grad().scalar_type(), at::kBFloat16);
    EXPECT_GT(leaf.grad().abs().sum().item<float>(), 0);
  }
}

}  // namespace
}  // namespace copus
