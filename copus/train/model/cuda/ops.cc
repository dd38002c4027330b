#include "copus/train/model/cuda/ops.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <atomic>
#include <limits>

#include "copus/base/check.h"
#include "copus/train/model/cuda/kernels.h"

namespace copus::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The kernels are compiled for compute capability 8.0 and later.
constexpr int kOldest = 8;
std::atomic<bool> is_used{true};

Type type_of(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? Type::kBf16 : Type::kFp32;
}
Stream stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
float* floats(const Tensor& x) { return x.data_ptr<float>(); }
at::TensorOptions fp32(const Tensor& like) { return like.options().dtype(at::kFloat); }
Int rows_of(const Tensor& x) { return x.numel() / x.size(-1); }

// Returns a leaf's FP32 gradient buffer, if autograd would only add the gradient to it. Then a
// kernel can add to it directly. Otherwise returns an undefined tensor.
Tensor gradient_buffer(const Tensor& leaf) {
  if (!leaf.is_leaf() || !leaf.requires_grad() || at::GradMode::is_enabled()) return {};
  const Tensor& buffer = leaf.grad();
  return buffer.defined() && buffer.scalar_type() == at::kFloat && buffer.is_contiguous()
             ? buffer
             : Tensor();
}

// Returns {x + delta, norm of x + delta}, or {norm of x} if there is no delta.
struct RmsNorm : Function<RmsNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& input, at::TensorList more,
                               const Tensor& weight, double eps) {
    const Tensor x = input.contiguous(), w = weight.contiguous();
    const Tensor delta = more.empty() ? Tensor() : more[0].contiguous();
    const Int n = x.size(-1);
    Tensor sum = delta.defined() ? at::empty_like(x) : x;
    Tensor y = at::empty_like(x);
    const Tensor inverse = at::empty({rows_of(x)}, fp32(x));
    C10_CUDA_CHECK(cuda::rms_norm(type_of(x), rows_of(x), n, static_cast<float>(eps), x.data_ptr(),
                                  delta.defined() ? delta.data_ptr() : nullptr, w.data_ptr(),
                                  delta.defined() ? sum.data_ptr() : nullptr, y.data_ptr(),
                                  floats(inverse), stream()));
    context->save_for_backward({sum, weight, inverse});
    context->saved_data["adds"] = delta.defined();
    return delta.defined() ? variable_list{sum, y} : variable_list{y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const bool adds = context->saved_data["adds"].toBool();
    const Tensor x = saved[0].contiguous(), weight = saved[1].contiguous();
    const Tensor& dnorm = grads.back();
    const Tensor dsum = adds && grads[0].defined() ? grads[0].contiguous() : Tensor();
    if (!dnorm.defined()) return result(adds, dsum, {});  // the norm was not used
    const Tensor dy = dnorm.contiguous(), dx = at::empty_like(x);
    const Int rows = rows_of(x), n = x.size(-1);
    const bool wants_weight = saved[1].requires_grad();
    const Tensor partial = wants_weight ? at::empty({norm_partials(rows), n}, fp32(x)) : Tensor();
    C10_CUDA_CHECK(rms_norm_backward(type_of(x), rows, n, x.data_ptr(), weight.data_ptr(),
                                     floats(saved[2]), dy.data_ptr(),
                                     dsum.defined() ? dsum.data_ptr() : nullptr, dx.data_ptr(),
                                     wants_weight ? floats(partial) : nullptr, stream()));
    if (!wants_weight) return result(adds, dx, {});
    const Tensor buffer = gradient_buffer(saved[1]);
    const Tensor total = buffer.defined() ? buffer : at::zeros({n}, fp32(x));
    C10_CUDA_CHECK(add_columns(partial.size(0), n, floats(partial), floats(total), stream()));
    return result(adds, dx, buffer.defined() ? Tensor() : total.to(weight.scalar_type()));
  }

 private:
  // Both terms of a sum have the gradient of the sum.
  static variable_list result(bool adds, const Tensor& dx, const Tensor& dweight) {
    if (adds) return {dx, dx, dweight, Tensor()};
    return {dx, dweight, Tensor()};
  }
};

Curve curve_of(Activation activation) {
  COPUS_CHECK(activation == Activation::kSilu || activation == Activation::kGeluTanh);
  return activation == Activation::kSilu ? Curve::kSilu : Curve::kGeluTanh;
}

struct Gated : Function<Gated> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_up, std::int64_t curve) {
    const Tensor x = gate_up.contiguous();
    context->save_for_backward({x});
    context->saved_data["curve"] = curve;
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() /= 2;
    Tensor y = at::empty(shape, x.options());
    C10_CUDA_CHECK(cuda::gated(type_of(x), static_cast<Curve>(curve), rows_of(x), shape.back(),
                               x.data_ptr(), y.data_ptr(), stream()));
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Tensor x = context->get_saved_variables()[0], dy = grads[0].contiguous();
    const Tensor dx = at::empty_like(x);
    C10_CUDA_CHECK(gated_backward(
        type_of(x), static_cast<Curve>(context->saved_data["curve"].toInt()), rows_of(dy),
        dy.size(-1), x.data_ptr(), dy.data_ptr(), dx.data_ptr(), stream()));
    return {dx, Tensor()};
  }
};

// x: [batch, length, heads, d], whose last dimension is dense.
Heads heads_of(const Tensor& x) {
  return {x.data_ptr(), x.size(2), x.stride(0), x.stride(1), x.stride(2)};
}
Tensor with_dense_heads(const Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

struct SplitHeads : Function<SplitHeads> {
  // `table`: empty, or cosines and sines.
  static variable_list forward(AutogradContext* context, const Tensor& input, std::int64_t heads,
                               std::int64_t kv, at::TensorList table) {
    const Tensor qkv = input.contiguous();
    const Int batch = qkv.size(0), length = qkv.size(1), d = qkv.size(2) / (heads + 2 * kv);
    const Tensor q = at::empty({batch, length, heads, d}, qkv.options());
    const Tensor k = at::empty({batch, length, kv, d}, qkv.options()), v = at::empty_like(k);
    C10_CUDA_CHECK(cuda::split_heads(type_of(qkv), batch, length, d, qkv.data_ptr(),
                                     table.empty() ? nullptr : floats(table[0]),
                                     table.empty() ? nullptr : floats(table[1]), heads_of(q),
                                     heads_of(k), heads_of(v), stream()));
    context->save_for_backward(table.vec());
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list table = context->get_saved_variables();
    const Tensor q = with_dense_heads(grads[0]), k = with_dense_heads(grads[1]),
                 v = with_dense_heads(grads[2]);
    const Int batch = q.size(0), length = q.size(1), d = q.size(3);
    const Tensor dqkv = at::empty({batch, length, (q.size(2) + 2 * k.size(2)) * d}, q.options());
    C10_CUDA_CHECK(join_heads(type_of(q), batch, length, d, heads_of(q), heads_of(k), heads_of(v),
                              table.empty() ? nullptr : floats(table[0]),
                              table.empty() ? nullptr : floats(table[1]), dqkv.data_ptr(),
                              stream()));
    variable_list result(3 + table.size());
    result[0] = dqkv;
    return result;
  }
};

// Adds dy [rows, n]^T x [rows, m] to buffer [n, m], with BF16 factors and FP32 sums. Returns false
// if the factors are not BF16 or this libtorch has no such product.
bool add_product([[maybe_unused]] const Tensor& dy, [[maybe_unused]] const Tensor& x,
                 [[maybe_unused]] Tensor buffer) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (dy.scalar_type() != at::kBFloat16) return false;
  at::addmm_out(buffer, buffer, dy.t(), x, at::kFloat);
  return true;
#else
  return false;
#endif
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
    const Tensor dy = grads[0].reshape({-1, weight.size(0)}).contiguous();
    Tensor dx, dweight;
    if (x.requires_grad()) dx = at::mm(dy, weight).view(x.sizes());
    if (weight.requires_grad()) {
      const Tensor rows = x.reshape({-1, weight.size(1)}).contiguous();
      const Tensor buffer = gradient_buffer(weight);
      if (!buffer.defined() || !add_product(dy, rows, buffer)) dweight = at::mm(dy.t(), rows);
    }
    if (!context->saved_data["bias"].toBool()) return {dx, dweight};
    return {dx, dweight, dy.sum(0)};
  }
};

// backward() overwrites the logits with their gradient, so it can be called only once.
struct CrossEntropy : Function<CrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets) {
    const Tensor from = logits.contiguous(), labels = targets.contiguous();
    const RowStatistics rows = statistics(from, labels, 0, std::numeric_limits<float>::quiet_NaN());
    const Tensor log_sums = rows.sum.log().add_(rows.largest);
    context->save_for_backward({from, labels, log_sums});
    return (log_sums - rows.target).mean();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    to_loss_gradient(saved[0], saved[1], 0, saved[2], grads[0]);
    return {saved[0], Tensor()};
  }

  static RowStatistics statistics(const Tensor& logits, const Tensor& targets, Int first,
                                  float elsewhere) {
    const Int rows = logits.size(0);
    const RowStatistics result{at::empty({rows}, fp32(logits)), at::empty({rows}, fp32(logits)),
                               at::empty({rows}, fp32(logits))};
    C10_CUDA_CHECK(cuda::row_statistics(type_of(logits), rows, logits.size(1), logits.data_ptr(),
                                        first, elsewhere, targets.data_ptr<std::int64_t>(),
                                        floats(result.largest), floats(result.sum),
                                        floats(result.target), stream()));
    return result;
  }
};

}  // namespace

bool takes(const Tensor& x) {
  return is_used && x.is_cuda() &&
         (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat) &&
         at::cuda::getDeviceProperties(x.get_device())->major >= kOldest;
}

std::string why_not(const RankDevice& device) {
  if (device.is_cpu()) return "the device is a CPU";
  const int major =
      at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device.index))->major;
  if (major >= kOldest) return "";
  return fmt::format("the GPU has compute capability {}; the kernels need {}", major, kOldest);
}

void use_kernels(bool use) { is_used = use; }

bool takes_norm(const Tensor& x) {
  return takes(x) && x.size(-1) <= longest_norm_row(type_of(x), x.size(-1));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return RmsNorm::apply(x, at::TensorList(), weight, eps)[0];
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps) {
  const std::vector<Tensor> more{delta};
  const variable_list both = RmsNorm::apply(x, at::TensorList(more), weight, eps);
  return {both[0], both[1]};
}

Tensor gated(const Tensor& gate_up, Activation activation) {
  return Gated::apply(gate_up, static_cast<std::int64_t>(curve_of(activation)));
}

QueryKeyValue split_heads(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                          const RotaryTable& table) {
  std::vector<Tensor> tables;
  if (table.cosines.defined()) tables = {table.cosines, table.sines};
  const variable_list parts = SplitHeads::apply(qkv, heads, kv_heads, at::TensorList(tables));
  return {parts[0], parts[1], parts[2]};
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  std::vector<Tensor> biases;
  if (bias.defined()) biases.push_back(bias);
  return Linear::apply(x, weight, at::TensorList(biases));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  return CrossEntropy::apply(logits, targets);
}

RowStatistics row_statistics(const Tensor& logits, const Tensor& targets, std::int64_t first) {
  return CrossEntropy::statistics(logits, targets, first, 0);
}

void to_loss_gradient(const Tensor& logits, const Tensor& targets, std::int64_t first,
                      const Tensor& log_sums, const Tensor& scale) {
  logits.unsafeGetTensorImpl()->bump_version();
  C10_CUDA_CHECK(cross_entropy_backward(type_of(logits), logits.size(0), logits.size(1),
                                        logits.data_ptr(), first, targets.data_ptr<std::int64_t>(),
                                        floats(log_sums), floats(scale), stream()));
}

void adamw(const AdamRates& rates, const Tensor& values, const Tensor& gradients,
           const Tensor& moment1, const Tensor& moment2, const Tensor& rounded) {
  const AdamStep step{.beta1 = static_cast<float>(rates.beta1),
                      .beta2 = static_cast<float>(rates.beta2),
                      .eps = static_cast<float>(rates.eps),
                      .keep = static_cast<float>(rates.keep),
                      .lr = static_cast<float>(rates.lr),
                      .root_correction2 = static_cast<float>(rates.root_correction2),
                      .gradient_scale = static_cast<float>(rates.gradient_scale)};
  C10_CUDA_CHECK(cuda::adamw(step, values.numel(), floats(values), floats(gradients),
                             floats(moment1), floats(moment2),
                             rounded.defined() ? rounded.data_ptr() : nullptr, stream()));
}

void add_squares(const Tensor& x, const Tensor& total) {
  const Tensor partial = at::empty({kSquarePartials}, total.options());
  C10_CUDA_CHECK(cuda::add_squares(x.numel(), floats(x), partial.data_ptr<double>(),
                                   total.data_ptr<double>(), stream()));
}

}  // namespace copus::cuda
