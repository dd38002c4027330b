// Maps Hugging Face tensors to our tensors, for the families that the engine trains: gpt2, llama,
// mistral, qwen2 and qwen3.
//
// Our matrices are [out, in], like those of torch.nn.Linear. Our rotary positions rotate element i
// together with element i + head_dim/2, like transformers' rotate_half, so queries and keys need no
// permutation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"
#include "copus/spec/model_spec.h"
#include "copus/train/state/parameters.h"

namespace copus {

// One or more of our tensors, stacked by rows (c_attn is query, key and value). The result is
// transposed in families that keep matrices as [in, out] (GPT-2's Conv1D).
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // as in the file
  std::vector<TensorSpec> parts;    // our tensors
  bool transposed = false;
};

// The Hugging Face tensors in forward order. Each of our tensors is a part of exactly one of them.
// With tied embeddings there is no head. Returns an error for families that the engine does not
// train.
Result<std::vector<HfTensor>> hf_tensors(const ModelSpec& model);

// Adds the prefix that hf_tensors() uses. Files that were saved from a model without its head lack
// it ("h.0.ln_1.weight" instead of "transformer.h.0.ln_1.weight").
std::string with_model_prefix(const ModelSpec& model, const std::string& name);

// Whether a file may hold this tensor although it is not a weight: masks and frequencies that older
// versions of transformers saved, and a head that is tied to the embedding. `name` must be a result
// of with_model_prefix().
bool is_no_weight(const ModelSpec& model, std::string_view name);

// Transposes a matrix of `rows` rows and `columns` columns: converts between our order and that of
// a file with [in, out] matrices.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to);

}  // namespace copus
