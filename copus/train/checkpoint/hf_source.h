// A model as Hugging Face keeps it: a folder with config.json and model.safetensors, or several
// files and their index. Read as our tensors.
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
  // Every tensor that the config implies must be there, with its shape, as F32, BF16 or F16, and no
  // other but those of is_no_weight().
  static Result<HfSource> open(const std::string& folder);

  const ModelSpec& model() const { return model_; }
  std::int64_t tensors() const { return tensors_; }  // in the files, as they name them
  std::int64_t bytes() const { return bytes_; }      // of those tensors
  const std::vector<std::string>& formats() const { return formats_; }
  const std::vector<std::string>& ignored() const { return ignored_; }  // of is_no_weight()

  // The whole of our tensor `name`, row by row. A value that is not finite is an error.
  Result<void> read(const std::string& name, std::span<float> out) const;

 private:
  struct Place {
    std::size_t file = 0;
    SafetensorsArray array;
    std::int64_t first_row = 0;  // of the rows that the array stacks
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
