#include <ATen/cuda/CUDAContext.h>

#include "copus/train/device/device.h"

namespace copus {

int gpu_count() { return at::cuda::device_count(); }
std::string gpu_name(int index) {
  return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->name;
}

}  // namespace copus
