// The functions of device.h that need CUDA.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Logging.h>

#include <cstdlib>

#include "copus/train/device/device.h"

namespace copus {

int gpu_count() { return at::cuda::device_count(); }
std::string gpu_name(int index) {
  return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->name;
}

void give_back_memory(RankDevice device) {
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
}

void quiet_library() {
  constexpr int kFatalAlone = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
    c10::initLogging();
  } else {
    FLAGS_caffe2_log_level = kFatalAlone;
  }
}

}  // namespace copus
