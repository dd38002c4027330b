// Replaces ops.cc in a build without nvcc: takes() is always false, so no operator is called.
#include "copus/base/check.h"
#include "copus/train/model/cuda/ops.h"

namespace copus::cuda {
namespace {

[[noreturn]] void absent() {
  COPUS_CHECK(false);
  std::abort();
}

}  // namespace

bool takes(const Tensor&) { return false; }
bool takes_norm(const Tensor&) { return false; }
void use_kernels(bool) {}
std::string why_not(const RankDevice& device) {
  return device.is_cuda() ? "this build was made without nvcc" : "the device is a CPU";
}

Tensor rms_norm(const Tensor&, const Tensor&, double) { absent(); }
SumAndNorm add_rms_norm(const Tensor&, const Tensor&, const Tensor&, double) { absent(); }
Tensor gated(const Tensor&, Activation) { absent(); }
QueryKeyValue split_heads(const Tensor&, std::int64_t, std::int64_t, const RotaryTable&) {
  absent();
}
Tensor linear(const Tensor&, const Tensor&, const Tensor&) { absent(); }
Tensor cross_entropy(const Tensor&, const Tensor&) { absent(); }
RowStatistics row_statistics(const Tensor&, const Tensor&, std::int64_t) { absent(); }
void to_loss_gradient(const Tensor&, const Tensor&, std::int64_t, const Tensor&, const Tensor&) {
  absent();
}
void adamw(const AdamRates&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
           const Tensor&) {
  absent();
}
void add_squares(const Tensor&, const Tensor&) { absent(); }

}  // namespace copus::cuda
