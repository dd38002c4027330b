// Which Hugging Face tensors hold which of ours, for the families that the engine trains: gpt2,
// llama, mistral, qwen2, qwen3.
//
// Our matrices are [out, in], as torch.nn.Linear's. Rotary positions turn element i with element
// i + head_dim/2, as transformers' rotate_half does, so queries and keys need no permutation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"
#include "copus/spec/model_spec.h"
#include "copus/train/state/parameters.h"

namespace copus {

// Our tensors stacked by rows (c_attn is query, key, value), then transposed where the family keeps
// matrices as [in, out] (GPT-2's Conv1D).
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // as in the file
  std::vector<TensorSpec> parts;    // ours
  bool transposed = false;
};

// In forward order; each of our tensors is a part of one. With tied embeddings there is no head.
// An error where the family, or what the model is made of, has no such layout here.
Result<std::vector<HfTensor>> hf_tensors(const ModelSpec& model);

// The name as hf_tensors() gives it: files of a model without its head lack the prefix
// ("h.0.ln_1.weight" for "transformer.h.0.ln_1.weight").
std::string with_model_prefix(const ModelSpec& model, const std::string& name);

// Whether a file may hold this beside the weights: masks and frequencies that older versions of
// transformers saved, and a head where the embedding is it. Names as with_model_prefix() gives.
bool is_no_weight(const ModelSpec& model, std::string_view name);

// Between the stacked rows, as `columns` wide rows of ours, and the file's order.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to);

}  // namespace copus
