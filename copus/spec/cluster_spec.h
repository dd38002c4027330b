// ClusterSpec: GPUs, the links inside a node and the network between nodes, with the efficiencies
// that were fitted.
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

enum class Precision { kBf16, kFp16, kFp8, kFp32 };
inline constexpr std::array kPrecisions = {Precision::kBf16, Precision::kFp16, Precision::kFp8,
                                           Precision::kFp32};
std::string_view to_string(Precision p);
Result<Precision> parse_precision(std::string_view text);

// How the GPUs of a node reach each other.
enum class LinkTopology {
  kSwitch,    // every pair at full rate (NVSwitch)
  kCubeMesh,  // DGX-1 hybrid cube mesh: rings of NVLinks, pairs at a fraction
  kMesh,      // all-to-all direct links: a pair has one link of many (MI300X)
  kRing,      // neighbours only (MI210, MI250X bridges)
  kPcie,      // no direct links
};
std::string_view to_string(LinkTopology t);

// Fitted efficiencies of a GPU: each a physical quantity with a default, each overridable in a
// cluster file under "efficiency". docs/cost-model.md says what each was fitted to.
struct GpuEfficiency {
  double matmul = 0.8;               // share of peak that a large matrix product reaches
  double matmul_half_m = 96;         // rows (tokens) at which half of it is reached
  double matmul_half_n = 96;         // columns (output width on this rank)
  double matmul_half_k = 96;         // depth (input width on this rank)
  double attention_forward = 0.6;    // share of peak in the fused attention kernel, forward
  double attention_backward = 0.5;   // and backward
  double memory = 0.8;               // share of memory bandwidth in element-wise kernels
  Seconds launch = microseconds(4);  // exposed cost of one kernel
  friend bool operator==(const GpuEfficiency&, const GpuEfficiency&) = default;
};

struct NetworkSpec {
  BytesPerSec node_bandwidth;               // per node and direction, all cards together
  double efficiency = 0.85;                 // share a large message reaches between two nodes
  Seconds latency = microseconds(8);        // per hop between nodes
  Seconds base_latency = microseconds(20);  // per collective that leaves the node
  double scale_penalty =
      0.0;  // bandwidth falls as 1/(1 + penalty*log2(nodes of the group)): longer paths
  // How much longer a transfer takes because the whole job uses the fabric, as a share at 64 nodes;
  // it sets in late, with the fifth power of the nodes.
  double congestion = 0;
  friend bool operator==(const NetworkSpec&, const NetworkSpec&) = default;
};

struct GpuSpec {
  std::string name;
  FlopsPerSec peak_bf16;
  FlopsPerSec peak_fp16;
  FlopsPerSec peak_fp8;  // 0: no such units
  FlopsPerSec peak_fp32;
  Bytes memory;
  BytesPerSec memory_bandwidth;
  bool fused_attention = true;  // a flash-attention kernel exists for it

  // Inside the node.
  std::int64_t gpus_per_node = 8;  // usual
  LinkTopology link_topology = LinkTopology::kSwitch;
  BytesPerSec link_bandwidth;                    // per GPU and direction, all links together
  double link_efficiency = 0.8;                  // share a large collective reaches
  Seconds link_latency = microseconds(3);        // per ring step
  Seconds link_base_latency = microseconds(12);  // per collective
  double in_network_reduction = 1;  // all-reduce gain where the switch adds (NVLink SHARP); 1: none

  NetworkSpec network;  // usual, of a usual node

  GpuEfficiency efficiency;

  // Peak rate for matrix products at `p`; zero when the GPU has no units for it.
  FlopsPerSec peak(Precision p) const;
  friend bool operator==(const GpuSpec&, const GpuSpec&) = default;
};

// An error that names the precisions the GPU has, when it has no units for `p`.
Result<void> check_precision(const GpuSpec& gpu, Precision p);

// (nodes / 64)^5: how congestion grows with the nodes of a job. At most 1: none larger was seen.
double congestion_growth(std::int64_t nodes);

struct ClusterSpec {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 8;
  GpuSpec gpu;
  NetworkSpec network;
  Json framework;  // the profile that came with a file, name or object (cost/framework.h); or null

  std::int64_t gpus() const { return nodes * gpus_per_node; }
  Result<void> validate() const;
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

// Limits that keep every product of counts far from overflow.
constexpr std::int64_t kMaxGpus = 1'000'000;

// A GPU from catalog JSON ("peak_tflops":{"bf16":…}, …).
Result<GpuSpec> gpu_from_json(const Json& json, const std::string& where);
Json gpu_to_json(const GpuSpec& gpu);
// A whole cluster of `nodes` x `gpus_per_node` (0: the GPU's usual number) with everything else
// from the GPU's entry.
Result<ClusterSpec> cluster_of(const GpuSpec& gpu, std::int64_t nodes, std::int64_t gpus_per_node);
// Applies the overridable fields of a cluster file to a defaulted cluster. Unknown keys are errors.
Result<ClusterSpec> apply_cluster_json(ClusterSpec defaults, const Json& json,
                                       const std::string& where);
Json cluster_to_json(const ClusterSpec& cluster);  // parse(print(x)) == x

}  // namespace copus
