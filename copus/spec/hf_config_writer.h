// Writes a ModelSpec as a Hugging Face config.json that the family's class in transformers reads.
#pragma once

#include <string>

#include "copus/base/json.h"
#include "copus/spec/model_spec.h"

namespace copus {

// Returns a config from which parse_hf_config() reads the same model. `dtype` is the value of
// torch_dtype: float32, bfloat16 or float16. REQUIRES: the model's family is one that
// parse_hf_config() reads.
Json hf_config_json(const ModelSpec& model, const std::string& dtype = "float32");

}  // namespace copus
