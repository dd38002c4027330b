// The options from which a rank's layout is built: model, plan, device, precision and so on.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "copus/spec/cluster_spec.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"
#include "copus/spec/run_modes.h"

namespace copus {

enum class Compute { kFp32, kBf16 };
inline constexpr std::array kComputes = {Compute::kFp32, Compute::kBf16};
inline const char* to_string(Compute compute) {
  return compute == Compute::kBf16 ? "bf16" : "fp32";
}

// The device on which a rank computes. torch_device() (train/device/) converts it to libtorch's.
struct RankDevice {
  bool cuda = false;
  int index = 0;  // number of the GPU on its node

  bool is_cpu() const { return !cuda; }
  bool is_cuda() const { return cuda; }
};

struct LayoutOptions {
  ModelSpec model;
  ParallelPlan plan;
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  std::uint64_t seed = 1;
  Compute compute = Compute::kFp32;
  RankDevice device;
  std::int64_t bucket_elements = 8 << 20;
  int ranks_per_node = 1;

  Precision precision() const {
    return compute == Compute::kBf16 ? Precision::kBf16 : Precision::kFp32;
  }
};

// Returns a cluster with these ranks as GPUs and no other properties, for functions such as
// ParallelPlan::validate() that only need their number.
inline ClusterSpec ranks_as_cluster(int ranks, int ranks_per_node) {
  ClusterSpec cluster;
  cluster.name = fmt::format("this run ({} rank{})", ranks, ranks == 1 ? "" : "s");
  cluster.nodes = ranks / ranks_per_node;
  cluster.gpus_per_node = ranks_per_node;
  return cluster;
}

}  // namespace copus
