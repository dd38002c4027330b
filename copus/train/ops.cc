#include "copus/train/ops.h"

#include <cmath>
#include <numbers>

namespace copus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Wavelengths that the model has not seen in full are stretched (Llama 3.1's model card and code).
double scaled_frequency(double frequency, const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::kLinear) return frequency / scaling.factor;
  if (scaling.kind != RopeScaling::kLlama3) return frequency;
  const double length = static_cast<double>(scaling.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < length / scaling.high_freq_factor) return frequency;
  if (wavelength > length / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth = (length / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// An autograd node can hold only what an IValue can: the function goes in as an object.
struct HeldFunction : torch::CustomClassHolder {
  explicit HeldFunction(TensorFunction f) : function(std::move(f)) {}
  TensorFunction function;
};

struct Recomputed : Function<Recomputed> {
  static Tensor forward(AutogradContext* context, c10::intrusive_ptr<HeldFunction> f,
                        at::TensorList inputs) {
    context->saved_data["function"] = c10::IValue::make_capsule(f);
    context->save_for_backward(inputs.vec());
    return f->function(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto f = c10::static_intrusive_pointer_cast<HeldFunction>(
        context->saved_data["function"].toCapsule());
    std::vector<Tensor> inputs;
    for (const Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
    }
    Tensor output;
    {
      const at::AutoGradMode record(true);
      output = f->function(inputs);
    }
    torch::autograd::backward({output}, {grads[0]});
    variable_list result{Tensor()};
    for (const Tensor& input : inputs) result.push_back(input.grad());
    return result;
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = x.to(at::kFloat);
  const Tensor scale = wide.square().mean(-1, true).add_(eps).rsqrt_();
  return (wide * scale).to(x.scalar_type()) * weight;
}

RotaryTable rotary_table(const ModelSpec& model, std::int64_t length, at::Device device) {
  const std::int64_t half = model.head_dim / 2;
  const Tensor angles = at::empty({length, half}, at::kDouble);
  auto angle = angles.accessor<double, 2>();
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        scaled_frequency(std::pow(model.rope_theta, -2.0 * static_cast<double>(i) /
                                                        static_cast<double>(model.head_dim)),
                         model.rope_scaling);
    for (std::int64_t p = 0; p < length; ++p) angle[p][i] = static_cast<double>(p) * frequency;
  }
  return {angles.cos().to(device, at::kFloat), angles.sin().to(device, at::kFloat)};
}

Tensor rotate(const Tensor& x, const RotaryTable& table) {
  const std::int64_t length = x.size(1), half = x.size(3) / 2;
  const Tensor cosines =
      table.cosines.narrow(0, 0, length).view({1, length, 1, half}).to(x.scalar_type());
  const Tensor sines =
      table.sines.narrow(0, 0, length).view({1, length, 1, half}).to(x.scalar_type());
  const Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  return at::cat({first * cosines - second * sines, second * cosines + first * sines}, 3);
}

Tensor activate(const Tensor& x, Activation activation) {
  if (activation == Activation::kSilu) return at::silu(x);
  return at::gelu(x, activation == Activation::kGeluTanh ? "tanh" : "none");
}

Tensor gated(const Tensor& gate_up, Activation activation) {
  const std::int64_t n = gate_up.size(-1) / 2;
  return activate(gate_up.narrow(-1, 0, n), activation) * gate_up.narrow(-1, n, n);
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t batch = q.size(0), length = q.size(1), heads = q.size(2), d = q.size(3);
  const std::int64_t kv = k.size(2);
  // [batch, heads, length, d]; each key and value head serves heads / kv query heads.
  const auto spread = [&](const Tensor& x) {
    const Tensor by_head = x.transpose(1, 2);
    if (kv == heads) return by_head;
    return by_head.unsqueeze(2)
        .expand({batch, kv, heads / kv, length, d})
        .reshape({batch, heads, length, d});
  };
#if TORCH_VERSION_MAJOR >= 2
  const Tensor mixed = at::scaled_dot_product_attention(q.transpose(1, 2), spread(k), spread(v), {},
                                                        0.0, /*is_causal=*/true);
#else
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  const Tensor mask = at::full({length, length}, -std::numeric_limits<float>::infinity(),
                               q.options().dtype(at::kFloat))
                          .triu_(1)
                          .to(q.scalar_type());
  const auto flat = [&](const Tensor& x) { return x.reshape({batch * heads, length, d}); };
  const Tensor scores =
      at::baddbmm(mask, flat(q.transpose(1, 2)), flat(spread(k)).transpose(1, 2), 1, scale);
  const Tensor mixed = at::bmm(scores.softmax(-1), flat(spread(v))).view({batch, heads, length, d});
#endif
  return mixed.transpose(1, 2).reshape({batch, length, heads * d});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets);
}

Tensor recomputed(const TensorFunction& f, const std::vector<Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return f(inputs);
  return Recomputed::apply(c10::make_intrusive<HeldFunction>(f), at::TensorList(inputs));
}

}  // namespace copus
