// Chooses the device of a rank, and answers questions about it. No other code chooses a device.
#pragma once

#include <optional>
#include <string>

#include "copus/base/result.h"
#include "copus/base/units.h"
#include "copus/spec/cluster_spec.h"
#include "copus/train/device/torch_api.h"
#include "copus/train/options/layout_options.h"

namespace copus {

inline at::Device torch_device(const RankDevice& device) {
  return device.is_cpu() ? at::Device(at::kCPU)
                         : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device.index));
}

// Returns the rank's device. On a node with several GPUs, local rank i takes GPU i. Sets the
// process's current device, and on CPUs the number of threads: cores / local ranks, unless
// OMP_NUM_THREADS is set. REQUIRES: no operator of libtorch has run yet.
Result<RankDevice> choose_device(DeviceKind kind, int local_rank, int local_world_size);

// Returns the peak rate of this process's node, relative to which MFU is computed. On GPUs it is
// the GPU's published dense rate in the catalog, times the local ranks; nothing if the catalog does
// not have the GPU. On CPUs it is the rate of a matrix product, measured here on one thread, times
// the number of threads of all local ranks (at most the number of cores).
std::optional<FlopsPerSec> node_peak(RankDevice device, Precision precision, int local_world_size);

// Returns the catalog's entry for the GPU whose name, as the driver gives it, is `name`.
std::optional<GpuSpec> catalog_entry_of(const std::string& name);

// The following functions are stubs if libtorch has no CUDA.
int gpu_count();
std::string gpu_name(int index);
// Gives freed memory that libtorch has kept back to the GPU, so that allocations of other sizes and
// other processes can use it. Waits for the GPU.
void give_back_memory(RankDevice device);
// From now on libtorch does not print c10d's warnings, nor its reports of errors that Copus reports
// itself. If the variable TORCH_CPP_LOG_LEVEL is set, it decides instead.
void quiet_library();

}  // namespace copus
