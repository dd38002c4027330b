// ModelSpec -> Hugging Face config.json, as the family's class in transformers reads it.
#pragma once

#include <string>

#include "copus/base/json.h"
#include "copus/spec/model_spec.h"

namespace copus {

// parse_hf_config() gives the same model back. `dtype` is torch_dtype: float32, bfloat16, float16.
// REQUIRES: the model came from parse_hf_config(), so that its family is one of those.
Json hf_config_json(const ModelSpec& model, const std::string& dtype = "float32");

}  // namespace copus
