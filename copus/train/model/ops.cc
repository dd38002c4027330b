#include "copus/train/model/ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "copus/train/model/cpu/kernels.h"
#include "copus/train/model/cuda/ops.h"

namespace copus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Returns a frequency of the rotary table after the model's scaling. The llama3 rule lowers the
// frequencies whose wavelength is too long for the original context, so that the model has not
// seen it in full (Llama 3.1's model card and code).
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

// An autograd node can save only what fits an IValue. So the function is wrapped in an object.
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

// Returns whether x is for the kernels of cpu/kernels.h. Otherwise ATen or cuda/ops.h computes it.
bool on_cpu(const Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

Tensor dense_rows(const Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

cpu::Heads heads_of(const Tensor& x) { return {x.size(2), x.stride(0), x.stride(1), x.stride(2)}; }

float* floats(const Tensor& x) { return x.data_ptr<float>(); }

// `table`: empty, or cosines and sines.
cpu::Rotation rotation_of(at::TensorList table) {
  if (table.empty()) return {};
  return {floats(table[0]), floats(table[1])};
}

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        double eps) {
    const Tensor x = input.contiguous();
    const std::int64_t n = x.size(-1), rows = x.numel() / n;
    Tensor y = at::empty_like(x);
    const Tensor inverse = at::empty({rows}, x.options());
    cpu::rms_norm(rows, n, static_cast<float>(eps), floats(x), floats(weight), floats(y),
                  floats(inverse));
    context->save_for_backward({input, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor x = saved[0].contiguous(), dy = grads[0].contiguous();
    const std::int64_t n = x.size(-1);
    const Tensor dx = saved[0].requires_grad() ? at::empty_like(x) : Tensor();
    const Tensor dweight = saved[1].requires_grad() ? at::empty_like(saved[1]) : Tensor();
    cpu::rms_norm_backward(x.numel() / n, n, floats(x), floats(saved[1]), floats(saved[2]),
                           floats(dy), dx.defined() ? floats(dx) : nullptr,
                           dweight.defined() ? floats(dweight) : nullptr);
    return {dx, dweight, Tensor()};
  }
};

struct Rotate : Function<Rotate> {
  static Tensor turn(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool backwards) {
    const Tensor from = dense_rows(x);
    Tensor y = at::empty(x.sizes(), x.options());
    cpu::rotate(x.size(0), x.size(1), x.size(3), backwards, rotation_of({cosines, sines}),
                heads_of(from), floats(from), heads_of(y), floats(y));
    return y;
  }

  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cosines,
                        const Tensor& sines) {
    context->save_for_backward({cosines, sines});
    return turn(x, cosines, sines, false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    return {turn(grads[0], saved[0], saved[1], true), Tensor(), Tensor()};
  }
};

cpu::Curve curve_of(Activation activation) {
  return activation == Activation::kSilu ? cpu::Curve::kSilu : cpu::Curve::kGeluTanh;
}
// Returns whether the kernels have this curve. They do not have the exact GELU, which needs the
// error function.
bool has_curve(Activation activation) {
  return activation == Activation::kSilu || activation == Activation::kGeluTanh;
}

struct Activate : Function<Activate> {
  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t curve) {
    const Tensor x = input.contiguous();
    context->save_for_backward({x});
    context->saved_data["curve"] = curve;
    Tensor y = at::empty_like(x);
    cpu::activate(x.numel(), static_cast<cpu::Curve>(curve), floats(x), floats(y));
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Tensor x = context->get_saved_variables()[0], dy = grads[0].contiguous();
    const Tensor dx = at::empty_like(x);
    cpu::activate_backward(x.numel(), static_cast<cpu::Curve>(context->saved_data["curve"].toInt()),
                           floats(x), floats(dy), floats(dx));
    return {dx, Tensor()};
  }
};

struct Gated : Function<Gated> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_up, std::int64_t curve) {
    const Tensor x = gate_up.contiguous();
    context->save_for_backward({x});
    context->saved_data["curve"] = curve;
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() /= 2;
    Tensor y = at::empty(shape, x.options());
    cpu::gated(y.numel() / shape.back(), shape.back(), static_cast<cpu::Curve>(curve), floats(x),
               floats(y));
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Tensor x = context->get_saved_variables()[0], dy = grads[0].contiguous();
    const Tensor dx = at::empty_like(x);
    const std::int64_t n = dy.size(-1);
    cpu::gated_backward(dy.numel() / n, n,
                        static_cast<cpu::Curve>(context->saved_data["curve"].toInt()), floats(x),
                        floats(dy), floats(dx));
    return {dx, Tensor()};
  }
};

cpu::Attention attention_of(const Tensor& q, const Tensor& k, const Tensor& v,
                            const cpu::Rotation& rotation) {
  TORCH_CHECK(k.strides() == v.strides() && q.size(2) % k.size(2) == 0);
  return {.batch = q.size(0),
          .length = q.size(1),
          .d = q.size(3),
          .rotation = rotation,
          .q_at = heads_of(q),
          .kv_at = heads_of(k),
          .q = floats(q),
          .k = floats(k),
          .v = floats(v)};
}

struct Attended {
  Tensor out, log_sums;
};
Attended attend(const cpu::Attention& a, const at::TensorOptions& options) {
  const std::int64_t heads = a.q_at.heads;
  Attended result{at::empty({a.batch, a.length, heads * a.d}, options),
                  at::empty({a.batch, heads, a.length}, options)};
  cpu::attention(a, floats(result.out), floats(result.log_sums));
  return result;
}

struct CausalAttention : Function<CausalAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& query, const Tensor& key,
                        const Tensor& value) {
    const Tensor q = dense_rows(query);
    const bool alike = key.strides() == value.strides() && key.stride(-1) == 1;
    const Tensor k = alike ? key : key.contiguous(), v = alike ? value : value.contiguous();
    const Attended result = attend(attention_of(q, k, v, {}), q.options());
    context->save_for_backward({q, k, v, result.out, result.log_sums});
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor dout = grads[0].contiguous();
    const Tensor& q = saved[0];
    const Tensor& k = saved[1];
    const Tensor dq = at::empty(q.sizes(), q.options());
    const Tensor dk = at::empty(k.sizes(), k.options()), dv = at::empty(k.sizes(), k.options());
    cpu::attention_backward(attention_of(q, k, saved[2], {}), floats(saved[3]), floats(saved[4]),
                            floats(dout), heads_of(dq), heads_of(dk), floats(dq), floats(dk),
                            floats(dv));
    return {dq, dk, dv};
  }
};

// The queries, keys and values in [batch, length, heads + 2 kv, d], as views.
struct Parts {
  Parts(const Tensor& qkv, std::int64_t heads, std::int64_t kv)
      : q(qkv.narrow(2, 0, heads)), k(qkv.narrow(2, heads, kv)), v(qkv.narrow(2, heads + kv, kv)) {}
  Tensor q, k, v;
};

// Attention on qkv as one tensor, so that its gradient is made as one tensor. For three separate
// inputs, autograd would pad each gradient with zeros and add them.
struct SelfAttention : Function<SelfAttention> {
  // `table`: empty, or cosines and sines.
  static Tensor forward(AutogradContext* context, const Tensor& qkv, std::int64_t heads,
                        std::int64_t kv, at::TensorList table) {
    const Tensor all = dense_rows(qkv);
    const Parts parts(all.unflatten(-1, {heads + 2 * kv, -1}), heads, kv);
    const Attended result =
        attend(attention_of(parts.q, parts.k, parts.v, rotation_of(table)), all.options());
    variable_list saved{all, result.out, result.log_sums};
    saved.insert(saved.end(), table.begin(), table.end());
    context->save_for_backward(saved);
    context->saved_data["heads"] = heads;
    context->saved_data["kv"] = kv;
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const std::int64_t kv = context->saved_data["kv"].toInt();
    const Tensor dout = grads[0].contiguous();
    const Tensor dqkv = at::empty(saved[0].sizes(), saved[0].options());
    const auto parts = [&](const Tensor& x) {
      return Parts(x.unflatten(-1, {heads + 2 * kv, -1}), heads, kv);
    };
    const Parts from = parts(saved[0]), to = parts(dqkv);
    cpu::attention_backward(
        attention_of(from.q, from.k, from.v, rotation_of(at::TensorList(saved).slice(3))),
        floats(saved[1]), floats(saved[2]), floats(dout), heads_of(to.q), heads_of(to.k),
        floats(to.q), floats(to.k), floats(to.v));
    variable_list result(saved.size());  // for qkv, heads, kv and the tables: as many as saved
    result[0] = dqkv;
    return result;
  }
};

// forward() keeps one large tensor, and backward() overwrites it with the gradient. So backward()
// can be called only once.
struct CrossEntropy : Function<CrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets) {
    context->saved_data["dtype"] = static_cast<std::int64_t>(logits.scalar_type());
    if (!on_cpu(logits)) {
      const Tensor logs = at::log_softmax(logits, 1, at::kFloat);
      context->save_for_backward({logs, targets});
      return logs.gather(1, targets.unsqueeze(1)).mean().neg();
    }
    const Tensor from = logits.contiguous(), labels = targets.contiguous();
    const std::int64_t rows = from.size(0), classes = from.size(1);
    const std::int64_t* label = labels.data_ptr<std::int64_t>();
    TORCH_CHECK(
        std::all_of(label, label + rows, [&](std::int64_t at) { return at >= 0 && at < classes; }),
        "cross_entropy: a target is not a class");
    const Tensor losses = at::empty({rows}, from.options());
    const Tensor probabilities = logits.requires_grad() ? at::empty_like(from) : Tensor();
    cpu::cross_entropy(rows, classes, floats(from), label, floats(losses),
                       probabilities.defined() ? floats(probabilities) : nullptr);
    context->save_for_backward({probabilities, labels});
    return losses.mean();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    Tensor gradient = saved[0];
    const Tensor& targets = saved[1];
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    const std::int64_t rows = gradient.size(0);
    if (gradient.is_cpu() && dtype == at::kFloat) {
      gradient.unsafeGetTensorImpl()->bump_version();
      cpu::cross_entropy_backward(rows, gradient.size(1), targets.data_ptr<std::int64_t>(),
                                  grads[0].item<float>() / static_cast<float>(rows),
                                  floats(gradient));
      return {gradient, Tensor()};
    }
    gradient.exp_().scatter_add_(1, targets.unsqueeze(1),
                                 at::full({rows, 1}, -1.0, gradient.options()));
    gradient.mul_(grads[0] / static_cast<double>(rows));
    return {gradient.to(dtype), Tensor()};
  }
};

// Returns a leaf's gradient buffer, if autograd would only add the gradient to it. Then an operator
// can add to it directly. Otherwise returns an undefined tensor.
Tensor gradient_buffer(const Tensor& leaf) {
  if (!leaf.is_leaf() || !leaf.requires_grad() || at::GradMode::is_enabled()) return {};
  const Tensor& buffer = leaf.grad();
  return buffer.defined() && on_cpu(buffer) && buffer.is_contiguous() ? buffer : Tensor();
}

struct Linear : Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        at::TensorList bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = !bias.empty();
    return at::linear(x, weight, bias.empty() ? Tensor() : bias[0]);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor& weight = saved[1];
    const Tensor dy = grads[0].reshape({-1, weight.size(0)});
    Tensor dx, dweight;
    if (x.requires_grad()) dx = at::mm(dy, weight).view(x.sizes());
    if (weight.requires_grad()) {
      const Tensor rows = x.reshape({-1, weight.size(1)});
      Tensor buffer = gradient_buffer(weight);
      if (buffer.defined()) {
        buffer.addmm_(dy.t(), rows);
      } else {
        dweight = at::mm(dy.t(), rows);
      }
    }
    if (!context->saved_data["bias"].toBool()) return {dx, dweight};
    return {dx, dweight, dy.sum(0)};
  }
};

struct Embedding : Function<Embedding> {
  static Tensor forward(AutogradContext* context, const Tensor& table, const Tensor& tokens) {
    context->save_for_backward({table, tokens});
    return at::embedding(table, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& table = saved[0];
    const Tensor buffer = gradient_buffer(table);
    if (!buffer.defined()) {
      return {at::embedding_dense_backward(grads[0], saved[1], table.size(0), -1, false), Tensor()};
    }
    const Tensor dy = grads[0].contiguous(), tokens = saved[1].contiguous();
    cpu::add_rows(tokens.numel(), table.size(1), tokens.data_ptr<std::int64_t>(), floats(dy),
                  floats(buffer));
    return {Tensor(), Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  if (on_cpu(x) && on_cpu(weight)) return RmsNorm::apply(x, weight.contiguous(), eps);
  if (cuda::takes_norm(x)) return cuda::rms_norm(x, weight, eps);
#if TORCH_VERSION_MAJOR >= 2
  return at::rms_norm(x, {x.size(-1)}, weight, eps);
#else
  const Tensor wide = x.to(at::kFloat);
  const Tensor scale = wide.square().mean(-1, true).add_(eps).rsqrt_();
  return (wide * scale).to(x.scalar_type()) * weight;
#endif
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps) {
  if (cuda::takes_norm(x)) return cuda::add_rms_norm(x, delta, weight, eps);
  const Tensor sum = x + delta;
  return {sum, rms_norm(sum, weight, eps)};
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
  if (on_cpu(x)) return Rotate::apply(x, table.cosines, table.sines);
  const std::int64_t length = x.size(1), half = x.size(3) / 2;
  const Tensor cosines =
      table.cosines.narrow(0, 0, length).view({1, length, 1, half}).to(x.scalar_type());
  const Tensor sines =
      table.sines.narrow(0, 0, length).view({1, length, 1, half}).to(x.scalar_type());
  // The gradient of split() is one concatenation. Two calls of narrow() would each have a padded
  // tensor as gradient.
  const std::vector<Tensor> halves = x.split(half, 3);
  const Tensor &first = halves[0], &second = halves[1];
  return at::cat({first * cosines - second * sines, second * cosines + first * sines}, 3);
}

Tensor activate(const Tensor& x, Activation activation) {
  if (on_cpu(x) && has_curve(activation)) {
    return Activate::apply(x, static_cast<std::int64_t>(curve_of(activation)));
  }
  if (activation == Activation::kSilu) return at::silu(x);
  return at::gelu(x, activation == Activation::kGeluTanh ? "tanh" : "none");
}

Tensor gated(const Tensor& gate_up, Activation activation) {
  if (on_cpu(gate_up) && has_curve(activation)) {
    return Gated::apply(gate_up, static_cast<std::int64_t>(curve_of(activation)));
  }
  if (cuda::takes(gate_up) && has_curve(activation)) return cuda::gated(gate_up, activation);
  const std::int64_t n = gate_up.size(-1) / 2;
  const std::vector<Tensor> halves = gate_up.split(n, -1);
  return activate(halves[0], activation) * halves[1];
}

Tensor linear_layer(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (cuda::takes(x)) return cuda::linear(x, weight, bias);
  if (!on_cpu(x)) return at::linear(x, weight, bias);
  // Passes the bias in a list, because in some versions of libtorch a Function cannot take an
  // undefined tensor.
  std::vector<Tensor> biases;
  if (bias.defined()) biases.push_back(bias);
  return Linear::apply(x, weight, at::TensorList(biases));
}

Tensor embed_rows(const Tensor& table, const Tensor& tokens) {
  return on_cpu(table) ? Embedding::apply(table, tokens) : at::embedding(table, tokens);
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (on_cpu(q)) return CausalAttention::apply(q, k, v);
  const std::int64_t batch = q.size(0), length = q.size(1), heads = q.size(2), d = q.size(3);
  const std::int64_t kv = k.size(2);
  // Returns x as [batch, heads, length, d]. Each key and value head is repeated for its heads / kv
  // query heads.
  const auto spread = [&](const Tensor& x) {
    const Tensor by_head = x.transpose(1, 2);
    if (kv == heads) return by_head;
    return by_head.unsqueeze(2)
        .expand({batch, kv, heads / kv, length, d})
        .reshape({batch, heads, length, d});
  };
#if TORCH_VERSION_MAJOR >= 2
  Tensor mixed;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 5
  // libtorch's fast BF16 kernels can use one key head for several query heads (enable_gqa).
  if (kv != heads && q.is_cuda() && q.scalar_type() == at::kBFloat16) {
    mixed = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                             v.transpose(1, 2), {}, 0.0, /*is_causal=*/true, {},
                                             /*enable_gqa=*/true);
  }
#endif
  if (!mixed.defined()) {
    mixed = at::scaled_dot_product_attention(q.transpose(1, 2), spread(k), spread(v), {}, 0.0,
                                             /*is_causal=*/true);
  }
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

Tensor self_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                      const RotaryTable& table) {
  if (on_cpu(qkv)) {
    std::vector<Tensor> tables;
    if (table.cosines.defined()) tables = {table.cosines, table.sines};
    return SelfAttention::apply(qkv, heads, kv_heads, at::TensorList(tables));
  }
  if (cuda::takes(qkv)) {
    const cuda::QueryKeyValue parts = cuda::split_heads(qkv, heads, kv_heads, table);
    return causal_attention(parts.q, parts.k, parts.v);
  }
  const Tensor by_head = qkv.unflatten(-1, {heads + 2 * kv_heads, -1});
  if (!table.cosines.defined()) {
    const std::vector<Tensor> parts = by_head.split_with_sizes({heads, kv_heads, kv_heads}, 2);
    return causal_attention(parts[0], parts[1], parts[2]);
  }
  const std::vector<Tensor> parts = by_head.split_with_sizes({heads + kv_heads, kv_heads}, 2);
  const std::vector<Tensor> turned = rotate(parts[0], table).split_with_sizes({heads, kv_heads}, 2);
  return causal_attention(turned[0], turned[1], parts[1]);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  if (cuda::takes(logits)) return cuda::cross_entropy(logits, targets);
  return CrossEntropy::apply(logits, targets);
}

Tensor recomputed(const TensorFunction& f, const std::vector<Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return f(inputs);
  return Recomputed::apply(c10::make_intrusive<HeldFunction>(f), at::TensorList(inputs));
}

}  // namespace copus
