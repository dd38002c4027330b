// ClusterSpec: GPUs, the links inside a node and the network between nodes, with their fitted
// efficiencies.
//
// Plain data; a spec that came from a parser has passed validate().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// In the last four but fp32, only the products of the layers' weights are narrow; the rest is bf16.
enum class Precision {
  kBf16,
  kFp16,
  kFp8,         // FP8 with delayed scaling: one scale per tensor, from earlier steps
  kFp8Current,  // FP8 with current scaling: one scale per tensor, from the tensor itself
  kMxfp8,       // FP8 with a scale per block of 32 elements
  kNvfp4,       // FP4 with a scale per block of 16 elements
  kFp32
};
inline constexpr std::array kPrecisions = {
    Precision::kBf16,  Precision::kFp16,  Precision::kFp8, Precision::kFp8Current,
    Precision::kMxfp8, Precision::kNvfp4, Precision::kFp32};
// Whether weights' products are narrower than the 16 bits of everything else.
constexpr bool is_quantised(Precision p) {
  return p == Precision::kFp8 || p == Precision::kFp8Current || p == Precision::kMxfp8 ||
         p == Precision::kNvfp4;
}
std::string_view to_string(Precision p);
Result<Precision> parse_precision(std::string_view text);

// How the GPUs of a node reach each other.
enum class LinkTopology {
  kSwitch,    // every pair at full rate (NVSwitch)
  kCubeMesh,  // DGX-1 hybrid cube mesh: rings of NVLinks; a pair has a fraction of the rate
  kMesh,      // direct links between all pairs: a pair has one of a GPU's links (MI300X)
  kRing,      // neighbours only (MI210, MI250X bridges)
  kPcie,      // no direct links
};
std::string_view to_string(LinkTopology t);

// Fitted efficiencies of a GPU. Each is a physical quantity with a default that a cluster file can
// override under "efficiency". docs/cost-model.md says what each was fitted to.
struct GpuEfficiency {
  double matmul = 0.8;               // share of peak that a large matrix product reaches
  double matmul_half_m = 96;         // rows (tokens) at which a product reaches half of that share
  double matmul_half_n = 96;         // the same for columns (output width on this rank)
  double matmul_half_k = 96;         // the same for depth (input width on this rank)
  double attention_forward = 0.6;    // share of peak in the fused attention kernel, forward
  double attention_backward = 0.5;   // the same, backward
  double memory = 0.8;               // share of memory bandwidth in element-wise kernels
  Seconds launch = microseconds(4);  // exposed cost of one kernel
  friend bool operator==(const GpuEfficiency&, const GpuEfficiency&) = default;
};

struct NetworkSpec {
  BytesPerSec node_bandwidth;               // per node and direction, all cards together
  double efficiency = 0.85;                 // share that a large message reaches between two nodes
  Seconds latency = microseconds(8);        // per hop between nodes
  Seconds base_latency = microseconds(20);  // per collective that leaves the node
  // Longer paths reduce the bandwidth by 1/(1 + penalty*log2(nodes of the group)).
  double scale_penalty = 0.0;
  // How much longer a transfer takes because the whole job uses the fabric, as a share at 64 nodes.
  // It grows with the fifth power of the nodes.
  double congestion = 0;
  friend bool operator==(const NetworkSpec&, const NetworkSpec&) = default;
};

struct GpuSpec {
  std::string name;
  FlopsPerSec peak_bf16;
  FlopsPerSec peak_fp16;
  FlopsPerSec peak_fp8;    // 0: the GPU has no FP8 units
  FlopsPerSec peak_mxfp8;  // 0: its units cannot scale blocks of 32 elements
  FlopsPerSec peak_nvfp4;
  FlopsPerSec peak_fp32;
  Bytes memory;
  BytesPerSec memory_bandwidth;
  bool fused_attention = true;  // a flash-attention kernel exists for this GPU

  // Inside the node.
  std::int64_t gpus_per_node = 8;  // the usual number
  LinkTopology link_topology = LinkTopology::kSwitch;
  BytesPerSec link_bandwidth;                    // per GPU and direction, all links together
  double link_efficiency = 0.8;                  // share that a large collective reaches
  Seconds link_latency = microseconds(3);        // per ring step
  Seconds link_base_latency = microseconds(12);  // per collective
  double in_network_reduction = 1;  // all-reduce gain if the switch adds (NVLink SHARP); 1: none

  NetworkSpec network;  // the usual network of a node with the usual number of GPUs

  GpuEfficiency efficiency;

  // Returns the peak rate of matrix products at `p`. Zero: the GPU has no units for it.
  FlopsPerSec peak(Precision p) const;
  friend bool operator==(const GpuSpec&, const GpuSpec&) = default;
};

// Fails if the GPU has no units for `p`. The error names the precisions that the GPU has.
Result<void> check_precision(const GpuSpec& gpu, Precision p);

// Returns (nodes / 64)^5, by which congestion grows with the nodes of a job. At most 1, because
// there are no measurements with more nodes.
double congestion_growth(std::int64_t nodes);

struct ClusterSpec {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 8;
  GpuSpec gpu;
  NetworkSpec network;
  Json framework;  // the profile in a cluster file: a name, an object (cost/framework.h) or null

  std::int64_t gpus() const { return nodes * gpus_per_node; }
  Result<void> validate() const;
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

// Keeps products of counts far from overflow.
constexpr std::int64_t kMaxGpus = 1'000'000;

// Reads a GPU from catalog JSON ("peak_tflops":{"bf16":…}, …).
Result<GpuSpec> gpu_from_json(const Json& json, const std::string& where);
Json gpu_to_json(const GpuSpec& gpu);
// Returns a cluster of `nodes` x `gpus_per_node` GPUs (0: the GPU's usual number). The GPU's entry
// gives everything else.
Result<ClusterSpec> cluster_of(const GpuSpec& gpu, std::int64_t nodes, std::int64_t gpus_per_node);
// Applies the overridable fields of a cluster file to a cluster with defaults. Unknown keys are
// errors.
Result<ClusterSpec> apply_cluster_json(ClusterSpec defaults, const Json& json,
                                       const std::string& where);
Json cluster_to_json(const ClusterSpec& cluster);  // parse(print(x)) == x

}  // namespace copus
