// Writes tensors of the engine to a safetensors file, which tests in Python read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "copus/interop/safetensors.h"
#include "copus/train/device/torch_api.h"

namespace copus {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// REQUIRES: each tensor holds FP32 numbers or 64-bit integers. Tensors may be on any device.
inline Result<void> write_tensors(const std::string& path, const NamedTensors& tensors) {
  std::vector<SafetensorsArray> arrays;
  for (const auto& [name, tensor] : tensors) {
    arrays.push_back({.name = name,
                      .dtype = tensor.scalar_type() == at::kLong ? "I64" : "F32",
                      .shape = tensor.sizes().vec()});
  }
  COPUS_TRY(SafetensorsWriter out, SafetensorsWriter::create(path, std::move(arrays), {}));
  for (const auto& [name, tensor] : tensors) {
    const Tensor flat = tensor.cpu().contiguous();
    COPUS_TRY_VOID(out.write({static_cast<const std::byte*>(flat.data_ptr()), flat.nbytes()}));
  }
  COPUS_TRY([[maybe_unused]] const auto written, out.finish());
  return {};
}

}  // namespace copus
