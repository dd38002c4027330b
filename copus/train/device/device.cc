#include "copus/train/device/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "copus/base/seconds_since.h"
#include "copus/spec/catalog.h"
#include "copus/train/device/matmul_rate.h"

namespace copus {
namespace {

int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

// Returns the best rate of a few matrix products on one thread. The matrices are large enough for
// caches to matter, and small enough not to delay the start of a run.
FlopsPerSec best_matmul_rate() {
  return matmul_rate(384, [](const auto& product) {
    Seconds best(1e9);
    for (int i = 0; i < 8; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      product();
      best = min(best, seconds_since(begin));
    }
    return best;
  });
}

}  // namespace

Result<RankDevice> choose_device(DeviceKind kind, int local_rank, int local_world_size) {
  if (kind == DeviceKind::kCpu) {
    if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      at::set_num_threads(std::max(1, cores() / local_world_size));
    }
    return RankDevice{};
  }
  const int count = gpu_count();
  if (count == 0) {
    return field_error("--device", "got cuda; want cpu (no GPU here, or a libtorch without CUDA)");
  }
  if (local_world_size > count) {
    return field_error("--device",
                       "got cuda with {} ranks on this node; want at most {}, one per GPU",
                       local_world_size, count);
  }
  quiet_library();
  const RankDevice device{.cuda = true, .index = local_rank};
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(torch_device(device));
  return device;
}

std::optional<FlopsPerSec> node_peak(RankDevice device, Precision precision, int local_world_size) {
  if (device.is_cpu()) {
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const FlopsPerSec rate = best_matmul_rate();
    at::set_num_threads(threads);
    return rate * std::min(cores(), threads * local_world_size);
  }
  const std::optional<GpuSpec> gpu = catalog_entry_of(gpu_name(device.index));
  if (!gpu || gpu->peak(precision).v <= 0) return std::nullopt;
  return gpu->peak(precision) * local_world_size;
}

std::optional<GpuSpec> catalog_entry_of(const std::string& name) {
  for (const std::string& known : catalog_gpu_names()) {
    // "NVIDIA H100 80GB HBM3" is H100-80GB-SXM: the model must match, and also the size of memory
    // if the driver's name has one.
    const std::string model = known.substr(0, known.find('-'));
    if (name.find(model) == std::string::npos) continue;
    const std::size_t size_at = known.find('-') + 1;
    const std::string size = known.substr(size_at, known.find('-', size_at) - size_at);
    if (name.find("GB") != std::string::npos && size.ends_with("GB") &&
        name.find(size) == std::string::npos) {
      continue;
    }
    if (Result<GpuSpec> gpu = catalog_gpu(known)) return std::move(gpu).value();
  }
  return std::nullopt;
}

}  // namespace copus
