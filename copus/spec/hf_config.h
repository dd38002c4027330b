// Hugging Face config.json -> ModelSpec. Families: gpt2, llama, mistral, qwen2, qwen3, mixtral,
// qwen3_moe, deepseek_v3.
#pragma once

#include <string>
#include <string_view>

#include "copus/base/result.h"
#include "copus/spec/model_spec.h"

namespace copus {

Result<ModelSpec> parse_hf_config(std::string_view text, const std::string& where);

// A catalog name, or the path of a config.json (or of the folder that holds it).
Result<ModelSpec> load_model(std::string_view name_or_path);
// Which of the two it is: a file of a catalog model's name is named by its path, "./tiny".
bool is_model_path(std::string_view name_or_path);

}  // namespace copus
