#include "copus/train/model/cpu/kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "copus/train/model/cpu/vector.h"

namespace copus::cpu {
namespace {

constexpr Int kGrain = 1 << 14;  // a thread gets at least so many elements
constexpr Int kPieces = 32;      // of a sum over rows; independent of the number of threads

Int rows_per_task(Int n) { return std::max<Int>(1, kGrain / std::max<Int>(1, n)); }

COPUS_EVERY_X86 void rms_rows(Int rows, Int n, float eps, const float* x, const float* weight,
                              float* y, float* inverse) {
  const Int whole = n / kLanes * kLanes;
  for (Int row = 0; row < rows; ++row, x += n, y += n) {
    Vector squares{};
    for (Int i = 0; i < whole; i += kLanes) {
      const Vector v = load(x + i);
      squares += v * v;
    }
    float total = sum(squares);
    for (Int i = whole; i < n; ++i) total += x[i] * x[i];
    const float scale = 1.0F / std::sqrt(total / static_cast<float>(n) + eps);
    inverse[row] = scale;
    for (Int i = 0; i < whole; i += kLanes) store(y + i, load(x + i) * scale * load(weight + i));
    for (Int i = whole; i < n; ++i) y[i] = x[i] * scale * weight[i];
  }
}

COPUS_EVERY_X86 void rms_rows_backward(Int rows, Int n, const float* x, const float* weight,
                                       const float* inverse, const float* dy, float* dx,
                                       float* dweight) {
  const Int whole = n / kLanes * kLanes;
  for (Int row = 0; row < rows; ++row, x += n, dy += n) {
    const float scale = inverse[row];
    if (dx != nullptr) {
      Vector products{};
      for (Int i = 0; i < whole; i += kLanes) {
        products += load(dy + i) * load(weight + i) * load(x + i);
      }
      float total = sum(products);
      for (Int i = whole; i < n; ++i) total += dy[i] * weight[i] * x[i];
      const float along = scale * scale * total / static_cast<float>(n);
      for (Int i = 0; i < whole; i += kLanes) {
        store(dx + i, (load(dy + i) * load(weight + i) - load(x + i) * along) * scale);
      }
      for (Int i = whole; i < n; ++i) dx[i] = (dy[i] * weight[i] - x[i] * along) * scale;
      dx += n;
    }
    if (dweight != nullptr) {
      for (Int i = 0; i < whole; i += kLanes) {
        store(dweight + i, load(dweight + i) + load(dy + i) * load(x + i) * scale);
      }
      for (Int i = whole; i < n; ++i) dweight[i] += dy[i] * x[i] * scale;
    }
  }
}

constexpr float kGeluScale = 1.5957691216F;  // 2 sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

// sigmoid(t(x)), and 1 - sigmoid(t(x)). Near 1, a subtraction would not be accurate enough for the
// second.
struct Sigmoid {
  Vector value, complement;
};
template <Curve curve>
COPUS_INLINE void sigmoid_of(const Vector& x, Sigmoid& result) {
  const Vector t = curve == Curve::kSilu ? x : x * kGeluScale * (1.0F + kGeluCube * x * x);
  const Vector e = exponential(-t);
  result.value = 1.0F / (1.0F + e);
  result.complement = e * result.value;
}

template <Curve curve>
COPUS_INLINE Vector value_of(const Vector& x) {
  Sigmoid s;
  sigmoid_of<curve>(x, s);
  return x * s.value;
}

// Returns the slope of x sigmoid(t(x)), and sets `value` to its value.
template <Curve curve>
COPUS_INLINE Vector slope_of(const Vector& x, Vector& value) {
  Sigmoid s;
  sigmoid_of<curve>(x, s);
  value = x * s.value;
  const Vector along = value * s.complement;
  if constexpr (curve == Curve::kSilu) return s.value + along;
  return s.value + along * kGeluScale * (1.0F + 3.0F * kGeluCube * x * x);
}

template <Curve curve>
COPUS_INLINE void activate_range(Int n, const float* x, float* y) {
  Int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector v = load(x + i);
    store(y + i, value_of<curve>(v));
  }
  if (i == n) return;
  const Vector v = load_some(x + i, n - i, 0);
  store_some(y + i, n - i, value_of<curve>(v));
}

template <Curve curve>
COPUS_INLINE void activate_range_backward(Int n, const float* x, const float* dy, float* dx) {
  Vector value;
  Int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(dx + i, load(dy + i) * slope_of<curve>(load(x + i), value));
  }
  if (i == n) return;
  const Vector slope = slope_of<curve>(load_some(x + i, n - i, 0), value);
  store_some(dx + i, n - i, load_some(dy + i, n - i, 0) * slope);
}

template <Curve curve>
COPUS_INLINE void gated_row(Int n, const float* gate, const float* up, float* y) {
  Int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector g = load(gate + i);
    store(y + i, value_of<curve>(g) * load(up + i));
  }
  if (i == n) return;
  const Vector g = load_some(gate + i, n - i, 0);
  store_some(y + i, n - i, value_of<curve>(g) * load_some(up + i, n - i, 0));
}

template <Curve curve>
COPUS_INLINE void gated_row_backward(Int n, const float* gate, const float* up, const float* dy,
                                     float* dgate, float* dup) {
  Vector value;
  Int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector d = load(dy + i), slope = slope_of<curve>(load(gate + i), value);
    store(dgate + i, d * load(up + i) * slope);
    store(dup + i, d * value);
  }
  if (i == n) return;
  const Vector d = load_some(dy + i, n - i, 0);
  const Vector slope = slope_of<curve>(load_some(gate + i, n - i, 0), value);
  store_some(dgate + i, n - i, d * load_some(up + i, n - i, 0) * slope);
  store_some(dup + i, n - i, d * value);
}

COPUS_EVERY_X86 void activate_part(Int n, Curve curve, const float* x, float* y) {
  if (curve == Curve::kSilu) {
    activate_range<Curve::kSilu>(n, x, y);
  } else {
    activate_range<Curve::kGeluTanh>(n, x, y);
  }
}

COPUS_EVERY_X86 void activate_part_backward(Int n, Curve curve, const float* x, const float* dy,
                                            float* dx) {
  if (curve == Curve::kSilu) {
    activate_range_backward<Curve::kSilu>(n, x, dy, dx);
  } else {
    activate_range_backward<Curve::kGeluTanh>(n, x, dy, dx);
  }
}

COPUS_EVERY_X86 void gated_rows(Int rows, Int n, Curve curve, const float* in, float* y) {
  for (Int row = 0; row < rows; ++row, in += 2 * n, y += n) {
    if (curve == Curve::kSilu) {
      gated_row<Curve::kSilu>(n, in, in + n, y);
    } else {
      gated_row<Curve::kGeluTanh>(n, in, in + n, y);
    }
  }
}

COPUS_EVERY_X86 void gated_rows_backward(Int rows, Int n, Curve curve, const float* in,
                                         const float* dy, float* din) {
  for (Int row = 0; row < rows; ++row, in += 2 * n, dy += n, din += 2 * n) {
    if (curve == Curve::kSilu) {
      gated_row_backward<Curve::kSilu>(n, in, in + n, dy, din, din + n);
    } else {
      gated_row_backward<Curve::kGeluTanh>(n, in, in + n, dy, din, din + n);
    }
  }
}

COPUS_EVERY_X86 void rotate_heads(Int heads, Int half, float sign, const float* cosines,
                                  const float* sines, const float* __restrict x, Int x_stride,
                                  float* __restrict y, Int y_stride) {
  for (Int head = 0; head < heads; ++head, x += x_stride, y += y_stride) {
    for (Int i = 0; i < half; ++i) {
      const float first = x[i], second = x[half + i], s = sign * sines[i];
      y[i] = first * cosines[i] - second * s;
      y[half + i] = second * cosines[i] + first * s;
    }
  }
}

COPUS_EVERY_X86 float softmax_row(Int n, Int target, const float* logits, float* probabilities) {
  const Int whole = n / kLanes * kLanes;
  constexpr float kLowest = -3.0e38F;
  Vector most = Vector{} + kLowest;
  for (Int i = 0; i < whole; i += kLanes) most = larger(load(logits + i), most);
  if (whole < n) most = larger(load_some(logits + whole, n - whole, kLowest), most);
  const float top = largest(most);
  Vector sums{};
  for (Int i = 0; i < whole; i += kLanes) {
    const Vector e = exponential(load(logits + i) - top);
    sums += e;
    if (probabilities != nullptr) store(probabilities + i, e);
  }
  float total = sum(sums);
  if (whole < n) {
    const Vector e = exponential(load_some(logits + whole, n - whole, kLowest) - top);
    for (Int i = 0; i < n - whole; ++i) total += e[i];
    if (probabilities != nullptr) store_some(probabilities + whole, n - whole, e);
  }
  if (probabilities != nullptr) {
    const float scale = 1.0F / total;
    for (Int i = 0; i < n; ++i) probabilities[i] *= scale;
  }
  return std::log(total) + top - logits[target];
}

COPUS_EVERY_X86 void scale_range(Int n, float scale, float* x) {
  for (Int i = 0; i < n; ++i) x[i] *= scale;
}

COPUS_EVERY_X86 void add_range(Int n, const float* from, float* to) {
  for (Int i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

void rms_norm(Int rows, Int n, float eps, const float* x, const float* weight, float* y,
              float* inverse) {
  at::parallel_for(0, rows, rows_per_task(n), [&](Int b, Int e) {
    rms_rows(e - b, n, eps, x + b * n, weight, y + b * n, inverse + b);
  });
}

void rms_norm_backward(Int rows, Int n, const float* x, const float* weight, const float* inverse,
                       const float* dy, float* dx, float* dweight) {
  const Int piece = std::max<Int>(rows_per_task(n), (rows + kPieces - 1) / kPieces);
  const Int pieces = (rows + piece - 1) / piece;
  std::vector<float> sums(dweight == nullptr ? 0 : static_cast<std::size_t>(pieces * n));
  at::parallel_for(0, pieces, 1, [&](Int b, Int e) {
    for (Int p = b; p < e; ++p) {
      const Int first = p * piece;
      rms_rows_backward(std::min(piece, rows - first), n, x + first * n, weight, inverse + first,
                        dy + first * n, dx == nullptr ? nullptr : dx + first * n,
                        dweight == nullptr ? nullptr : sums.data() + p * n);
    }
  });
  if (dweight == nullptr) return;
  std::fill_n(dweight, n, 0.0F);
  for (Int p = 0; p < pieces; ++p) add_range(n, sums.data() + p * n, dweight);
}

void activate(Int count, Curve curve, const float* x, float* y) {
  at::parallel_for(0, (count + kLanes - 1) / kLanes, kGrain / kLanes, [&](Int b, Int e) {
    b *= kLanes;
    activate_part(std::min(e * kLanes, count) - b, curve, x + b, y + b);
  });
}

void activate_backward(Int count, Curve curve, const float* x, const float* dy, float* dx) {
  at::parallel_for(0, (count + kLanes - 1) / kLanes, kGrain / kLanes, [&](Int b, Int e) {
    b *= kLanes;
    activate_part_backward(std::min(e * kLanes, count) - b, curve, x + b, dy + b, dx + b);
  });
}

void gated(Int rows, Int n, Curve curve, const float* gate_up, float* y) {
  at::parallel_for(0, rows, rows_per_task(n), [&](Int b, Int e) {
    gated_rows(e - b, n, curve, gate_up + 2 * b * n, y + b * n);
  });
}

void gated_backward(Int rows, Int n, Curve curve, const float* gate_up, const float* dy,
                    float* dgate_up) {
  at::parallel_for(0, rows, rows_per_task(n), [&](Int b, Int e) {
    gated_rows_backward(e - b, n, curve, gate_up + 2 * b * n, dy + b * n, dgate_up + 2 * b * n);
  });
}

void rotate(Int batch, Int length, Int d, bool backwards, const Rotation& rotation,
            const Heads& x_at, const float* x, const Heads& y_at, float* y) {
  const Int half = d / 2;
  at::parallel_for(0, batch * length, rows_per_task(x_at.heads * d), [&](Int b, Int e) {
    for (Int row = b; row < e; ++row) {
      const Int sequence = row / length, position = row % length;
      rotate_heads(
          x_at.heads, half, backwards ? -1.0F : 1.0F, rotation.cosines + position * half,
          rotation.sines + position * half,
          x + sequence * x_at.batch_stride + position * x_at.position_stride, x_at.head_stride,
          y + sequence * y_at.batch_stride + position * y_at.position_stride, y_at.head_stride);
    }
  });
}

void cross_entropy(Int rows, Int classes, const float* logits, const Int* targets, float* losses,
                   float* probabilities) {
  at::parallel_for(0, rows, rows_per_task(classes), [&](Int b, Int e) {
    for (Int row = b; row < e; ++row) {
      losses[row] = softmax_row(classes, targets[row], logits + row * classes,
                                probabilities == nullptr ? nullptr : probabilities + row * classes);
    }
  });
}

void cross_entropy_backward(Int rows, Int classes, const Int* targets, float scale,
                            float* probabilities) {
  at::parallel_for(0, rows, rows_per_task(classes), [&](Int b, Int e) {
    for (Int row = b; row < e; ++row) {
      float* p = probabilities + row * classes;
      p[targets[row]] -= 1.0F;
      scale_range(classes, scale, p);
    }
  });
}

void add_rows(Int count, Int n, const Int* rows, const float* values, float* table) {
  for (Int i = 0; i < count; ++i) add_range(n, values + i * n, table + rows[i] * n);
}

}  // namespace copus::cpu
