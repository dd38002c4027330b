// The model's tensors by name, how tensor parallelism cuts each, and where a rank's part lies.
//
// A *tensor* here is logical: it has a name, is whole, and is the same at every layout. Initial
// weights, checkpoints and changes of layout refer to tensors. A *parameter* is what a rank
// computes with: the local parts of one or more tensors, stacked by rows (query, key and value are
// one matrix product).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

enum class Cut { kNone, kRows, kColumns };

// Whether the gradients of the copies of a replicated tensor are equal, or must be summed
// (kPartialUnderSp: only under sequence parallelism).
enum class Copies { kEqual, kPartial, kPartialUnderSp };

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole tensor
  Cut cut = Cut::kNone;
  // Of kRows: the largest number of parts (KV heads). With more ranks than that, several ranks hold
  // the same part. 0: no limit.
  std::int64_t max_parts = 0;
  Copies copies = Copies::kEqual;
  double init_std = 0;  // 0: constant
  double init_value = 0;
};

// Whether the gradients of this tensor are also taken sample by sample, for the noise scale. These
// tensors are the weight of the final norm, and of the first norm of a few layers that are spread
// over the model.
bool is_watched_scale(const ModelSpec& model, const std::string& name);

struct ParameterSpec {
  std::string name;
  std::vector<TensorSpec> tensors;
  bool decay = false;  // weight decay: matrices, not norms and biases
};

// The part of a tensor on one tensor-parallel rank.
struct Shard {
  std::int64_t begin = 0;   // along the cut dimension
  std::int64_t length = 0;  // real rows or columns
  std::int64_t padded = 0;  // with padding, so that all ranks hold the same number
  std::int64_t copies = 1;  // ranks that hold this same part
  std::int64_t copy = 0;    // which of them this rank is
};
Shard shard_of(const TensorSpec& tensor, std::int64_t tp, std::int64_t rank);
// The shape on the rank, with padding.
std::vector<std::int64_t> local_shape(const TensorSpec& tensor, const Shard& shard);
std::int64_t element_count(const std::vector<std::int64_t>& shape);

// Consecutive layers, with the embedding before the model's first layer and the head after its
// last.
struct ChunkSpec {
  std::int64_t index = 0;
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embeds = false;  // holds the embedding, takes tokens
  bool heads = false;   // holds the final norm and the head, gives the loss
};
ChunkSpec chunk_spec(const ModelSpec& model, const ParallelPlan& plan, std::int64_t index);

// The parameters of a chunk in forward order. Names:
//   embed.tokens.weight  embed.positions.weight
//   layers.N.{attention_norm,mlp_norm}.{weight,bias}
//   layers.N.attention.{q,k,v,out}.{weight,bias}  layers.N.attention.{q_norm,k_norm}.weight
//   layers.N.mlp.{gate,up,down}.{weight,bias}
//   final_norm.{weight,bias}  head.weight
// Matrices are [out, in]. With tied embeddings the head is embed.tokens.weight; a chunk that holds
// both ends lists it once.
std::vector<ParameterSpec> chunk_parameters(const ModelSpec& model, const ChunkSpec& chunk);
// All tensors of the model in forward order, each once.
std::vector<TensorSpec> model_tensors(const ModelSpec& model);

// Fills `out` with the initial values of row-major elements [begin, begin + count) of a tensor.
// They depend only on the seed, the tensor's name and the element's index.
void initial_values(const TensorSpec& tensor, std::uint64_t seed, std::int64_t begin,
                    std::int64_t count, float* out);

}  // namespace copus
