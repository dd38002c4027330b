// ComputeModel: the time of a layer's operators on one rank.
//
// An operator takes the longer of its arithmetic and its memory traffic, plus the launch of its
// kernels. Narrow shapes lower the utilisation of arithmetic. docs/cost-model.md has the formulas.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/cost/collectives.h"
#include "copus/cost/options.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// Everything in a plan and job that the cost of one layer on one rank depends on.
struct LayerShape {
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t ep = 1;
  std::int64_t etp = 1;  // ranks that an expert is cut over
  std::int64_t micro_batch = 1;
  std::int64_t seq_len = 1;
  bool sp = false;
  Recompute recompute = Recompute::kNone;
};

// Time of one piece of the model (a layer, the embedding, the head) for one micro-batch, by what it
// is spent on.
struct PieceTime {
  Seconds compute;  // operators and launches
  Seconds tp;       // exposed tensor-parallel communication
  Seconds cp;
  Seconds ep;
  Seconds pp;  // posting stage-to-stage messages

  constexpr Seconds total() const { return compute + tp + cp + ep + pp; }
  constexpr PieceTime& operator+=(const PieceTime& o) {
    compute += o.compute;
    tp += o.tp;
    cp += o.cp;
    ep += o.ep;
    pp += o.pp;
    return *this;
  }
  friend constexpr PieceTime operator+(PieceTime a, const PieceTime& b) { return a += b; }
  friend constexpr PieceTime operator*(double k, const PieceTime& p) {
    return {p.compute * k, p.tp * k, p.cp * k, p.ep * k, p.pp * k};
  }
};

struct PieceCost {
  PieceTime forward;
  PieceTime backward_input;   // gradient of the input, without recompute
  PieceTime backward_weight;  // gradient of the weights
  PieceTime recompute;        // forward work repeated before the backward pass
  // Extra time of forward and backward while a pipeline message over the network is pending.
  Seconds pending_forward, pending_backward;

  constexpr PieceTime backward() const { return backward_input + backward_weight + recompute; }
};

// Rows of the expert layers on one rank, for one micro-batch. All ranks get the same number from a
// balanced router; CostOptions::expert_load() says how many more the busiest rank computes.
struct ExpertRows {
  double sent = 0;      // copies of tokens that the rank sends to experts
  double computed = 0;  // rows of the rank's experts, all together
};
ExpertRows expert_rows(const ModelSpec& model, const CostOptions& options,
                       const LayerShape& shape) noexcept;

// Rows that one rank sends with a dispatch, by where they go. What stays on the rank is left out.
struct ExpertSends {
  double inside = 0;   // to other ranks of its node, also on behalf of ranks of other nodes
  double outside = 0;  // to other nodes
};
// `group` is the place of the expert-parallel group.
ExpertSends expert_sends(const ModelSpec& model, const CostOptions& options,
                         const LayerShape& shape, GroupPlace group) noexcept;
// Returns in how many of `parts` equal parts of a layer's experts the experts of one token lie, on
// average, if all experts are equally popular. The router may limit the groups that it chooses
// from.
double parts_reached(const MoeSpec& moe, std::int64_t parts) noexcept;

struct LayerCosts {
  PieceCost dense;      // a layer with the plain MLP
  PieceCost moe;        // a layer with experts
  PieceCost embedding;  // first stage
  PieceCost head;       // last stage: vocabulary projection and loss
};

class ComputeModel {
 public:
  ComputeModel(const ModelSpec& model, const ClusterSpec& cluster, const CostOptions& options);

  LayerCosts layer_costs(const LayerShape& shape) const noexcept;

  // Time of `count` matrix products of (m x k) by (k x n) in one launch. Only products of the
  // layers' weights are in FP8 or FP4; `wide`: never below 16 bits.
  Seconds matmul(double m, double n, double k, double count = 1, bool wide = false) const noexcept;
  // The same for `count` gradients of weights, which the products add to the gradients in memory.
  Seconds matmul_into_gradients(double m, double n, double k, double count) const noexcept;
  // Time to quantise that many elements for FP8 or FP4 products; 0 in other precisions.
  Seconds quantise(double elements) const noexcept;
  // Time of element-wise work that reads and writes `bytes` in `kernels` launches.
  Seconds stream(Bytes bytes, double kernels = 1) const noexcept;

  bool fused_attention() const { return fused_; }
  double element_bytes() const { return element_; }

 private:
  // `out_bytes`: memory traffic per element of the result.
  Seconds product(double m, double n, double k, double count, double out_bytes,
                  bool wide) const noexcept;
  void attention_core(const LayerShape& shape, Seconds& forward, Seconds& backward) const noexcept;
  void attention(const LayerShape& shape, PieceCost& cost) const noexcept;
  void dense_mlp(const LayerShape& shape, double ffn, PieceCost& cost) const noexcept;
  void moe_mlp(const LayerShape& shape, PieceCost& cost) const noexcept;
  // Adds the transfers of tokens to the ranks of their experts and back.
  void expert_exchange(const LayerShape& shape, PieceCost& cost) const noexcept;
  void norm_and_residual(const LayerShape& shape, PieceCost& cost) const noexcept;
  // The products that a tensor-parallel transfer serves: a layer's dense products, or embedding and
  // head.
  enum class TpProducts { kDense, kOther };
  void tensor_parallel(const LayerShape& shape, double regions, TpProducts products,
                       PieceCost& cost) const noexcept;
  // Adds ring attention, recompute and the host's least time to a layer. `experts`: how many
  // experts of the layer the rank holds.
  void finish_layer(const LayerShape& shape, Seconds core_forward, double experts,
                    PieceCost& cost) const noexcept;

  const ModelSpec& model_;
  CostOptions options_;
  GpuEfficiency efficiency_;
  CollectiveModel collectives_;
  std::int64_t gpus_per_node_;
  bool has_fp8_units_;
  FlopsPerSec peak_;       // matrix products of the layers
  FlopsPerSec wide_peak_;  // attention and vocabulary head: never below 16 bits
  FlopsPerSec half_peak_;  // of 16 bits, for which matmul_half_k is stated
  BytesPerSec memory_;
  double element_;         // bytes of an activation
  double operand_;         // bytes of an operand of the layers' products
  double quantise_bytes_;  // bytes moved to quantise one element; 0: nothing is quantised
  bool fused_;
};

}  // namespace copus
