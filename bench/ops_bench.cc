// Compares the engine's CPU operators, forward and backward together, with the same operators built
// from ATen's: `ops_bench [threads]`. Prints one line per operator with both times and their ratio.
// The two alternate, and each time is the median.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "copus/base/median.h"
#include "copus/train/model/ops.h"

namespace copus {
namespace {

using Int = std::int64_t;
constexpr int kRepetitions = 15;

double milliseconds(const TensorFunction& f, const std::vector<Tensor>& inputs) {
  for (const Tensor& input : inputs) input.mutable_grad().reset();
  const auto begin = std::chrono::steady_clock::now();
  const Tensor y = f(inputs);
  torch::autograd::backward({y}, {y.dim() == 0 ? at::ones({}) : y.detach()});
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

void compare(const std::string& name, const TensorFunction& ours, const TensorFunction& aten,
             const std::vector<Tensor>& inputs) {
  for (const Tensor& input : inputs) input.requires_grad_(true);
  std::vector<double> our_times, aten_times;
  for (int i = 0; i < kRepetitions + 2; ++i) {
    const double our_time = milliseconds(ours, inputs), aten_time = milliseconds(aten, inputs);
    if (i < 2) continue;
    our_times.push_back(our_time);
    aten_times.push_back(aten_time);
  }
  fmt::print("{:<34} {:8.3f} ms   ATen {:8.3f} ms   ratio {:5.2f}\n", name, median(our_times),
             median(aten_times), median(aten_times) / median(our_times));
}

Tensor aten_rotation(const Tensor& x, const RotaryTable& table) {
  const Int length = x.size(1), half = x.size(3) / 2;
  const Tensor c = table.cosines.view({1, length, 1, half});
  const Tensor s = table.sines.view({1, length, 1, half});
  const Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  return at::cat({first * c - second * s, second * c + first * s}, 3);
}

Tensor aten_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Int length = q.size(1);
  const auto by_head = [](const Tensor& x) { return x.transpose(1, 2); };
  const Tensor mask =
      at::full({length, length}, -std::numeric_limits<float>::infinity(), q.options()).triu_(1);
  const Tensor scores = at::matmul(by_head(q), by_head(k).transpose(2, 3)) /
                        std::sqrt(static_cast<double>(q.size(3)));
  return at::matmul((scores + mask).softmax(-1), by_head(v)).transpose(1, 2).flatten(2);
}

Tensor aten_self_attention(const Tensor& qkv, Int heads, const RotaryTable& table) {
  const Tensor x = qkv.unflatten(-1, {3 * heads, -1});
  return aten_attention(aten_rotation(x.narrow(2, 0, heads), table),
                        aten_rotation(x.narrow(2, heads, heads), table),
                        x.narrow(2, 2 * heads, heads));
}

void compare_all(Int batch, Int length, Int heads, Int d, Int ffn, Int vocab) {
  const Int hidden = heads * d;
  fmt::print("-- batch {}, length {}, {} heads of {}, ffn {}, vocabulary {}\n", batch, length,
             heads, d, ffn, vocab);
  compare(
      "rms_norm", [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); },
      [](const auto& in) { return in[0] * (in[0].square().mean(-1, true) + 1e-5).rsqrt() * in[1]; },
      {at::randn({batch, length, hidden}), at::randn({hidden})});
  compare(
      "gated, silu", [](const auto& in) { return gated(in[0], Activation::kSilu); },
      [&](const auto& in) {
        return at::silu(in[0].narrow(-1, 0, ffn)) * in[0].narrow(-1, ffn, ffn);
      },
      {at::randn({batch, length, 2 * ffn})});
  compare(
      "gelu, tanh", [](const auto& in) { return activate(in[0], Activation::kGeluTanh); },
      [](const auto& in) { return at::gelu(in[0], "tanh"); }, {at::randn({batch, length, ffn})});
  ModelSpec model;
  model.head_dim = d;
  const RotaryTable table = rotary_table(model, length, at::kCPU);
  compare(
      "rotate", [&](const auto& in) { return rotate(in[0], table); },
      [&](const auto& in) { return aten_rotation(in[0], table); },
      {at::randn({batch, length, heads, d})});
  compare(
      "causal_attention", [](const auto& in) { return causal_attention(in[0], in[1], in[2]); },
      [](const auto& in) { return aten_attention(in[0], in[1], in[2]); },
      {at::randn({batch, length, heads, d}), at::randn({batch, length, heads, d}),
       at::randn({batch, length, heads, d})});
  compare(
      "self_attention, rotated",
      [&](const auto& in) { return self_attention(in[0], heads, heads, table); },
      [&](const auto& in) { return aten_self_attention(in[0], heads, table); },
      {at::randn({batch, length, 3 * hidden})});
  const Tensor targets = at::randint(vocab, {batch * length}, at::kLong);
  compare(
      "cross_entropy", [&](const auto& in) { return cross_entropy(in[0], targets); },
      [&](const auto& in) { return at::cross_entropy_loss(in[0], targets); },
      {at::randn({batch * length, vocab})});
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  at::set_num_threads(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1);
  copus::compare_all(8, 128, 4, 32, 352, 256);
  copus::compare_all(8, 256, 8, 32, 704, 256);
  copus::compare_all(1, 256, 12, 64, 3072, 50257);
  return 0;
}
