// Reads a Hugging Face model as our tensors. Its folder has config.json, and model.safetensors or
// several files and their index.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/interop/safetensors.h"
#include "copus/spec/model_spec.h"
#include "copus/train/checkpoint/hf_weights.h"

namespace copus {

class HfSource {
 public:
  // The files must have every tensor that the config implies, in the right shape, as F32, BF16 or
  // F16. They may have no other tensors, except those for which is_no_weight() holds.
  static Result<HfSource> open(const std::string& folder);

  const ModelSpec& model() const { return model_; }
  std::int64_t tensors() const { return tensors_; }  // weight tensors in the files
  std::int64_t bytes() const { return bytes_; }      // of those tensors
  const std::vector<std::string>& formats() const { return formats_; }
  const std::vector<std::string>& ignored() const { return ignored_; }  // those of is_no_weight()

  // Reads all of our tensor `name`, row by row. A value that is not finite is an error.
  Result<void> read(const std::string& name, std::span<float> out) const;

 private:
  struct Place {
    std::size_t file = 0;
    SafetensorsArray array;
    std::int64_t first_row = 0;  // among the rows of all tensors that the array stacks
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool transposed = false;
  };

  HfSource() = default;
  Result<void> open_files(const std::string& folder);
  Result<void> place(const std::string& folder);
  Result<void> check(const HfTensor& wanted, std::size_t file, const SafetensorsArray& array) const;
  Result<void> read_floats(const Place& place, std::int64_t first, std::span<float> out) const;

  ModelSpec model_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;  // by our name
  std::int64_t tensors_ = 0, bytes_ = 0;
  std::vector<std::string> formats_, ignored_;
};

}  // namespace copus
