// Reads a ModelSpec from a Hugging Face config.json. Families: gpt2, llama, mistral, qwen2, qwen3,
// mixtral, qwen3_moe, deepseek_v3.
#pragma once

#include <string>
#include <string_view>

#include "copus/base/result.h"
#include "copus/spec/model_spec.h"

namespace copus {

Result<ModelSpec> parse_hf_config(std::string_view text, const std::string& where);

// Loads a model from the catalog, from a config.json, or from the folder that holds a config.json.
Result<ModelSpec> load_model(std::string_view name_or_path);
// Whether the text is a path. A catalog name is not a path, even if a file has the same name; such
// a file needs a path such as "./tiny".
bool is_model_path(std::string_view name_or_path);

}  // namespace copus
