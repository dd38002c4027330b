// The one place where the device is chosen.
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

// The rank's device. On a node with several GPUs, local rank i takes GPU i. Sets the process's
// current device, and on CPUs the number of threads: cores / local ranks, unless OMP_NUM_THREADS
// says otherwise. Called before the first operator.
Result<RankDevice> choose_device(DeviceKind kind, int local_rank, int local_world_size);

// What MFU is measured against, for this process's node: a GPU's published dense rate, by its name
// in the catalog, times the local ranks; or for CPUs the rate of a matrix product, measured here,
// on as many threads as the ranks have cores for. Nothing for a GPU that the catalog does not know.
std::optional<FlopsPerSec> node_peak(RankDevice device, Precision precision, int local_world_size);

// The catalog's GPU of that name, as the driver gives it.
std::optional<GpuSpec> catalog_entry_of(const std::string& name);

// The GPU's name; a stub where libtorch has no CUDA.
int gpu_count();
std::string gpu_name(int index);
// Gives what libtorch has kept of freed memory back to the GPU, where other sizes, and other
// processes, can have it. Waits for the GPU.
void give_back_memory(RankDevice device);
// From now on c10d's warnings, and its reports of errors that are ours to name, are not printed.
// The variable TORCH_CPP_LOG_LEVEL brings them back.
void quiet_library();

}  // namespace copus
