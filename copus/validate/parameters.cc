#include "copus/validate/parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "copus/base/text.h"

namespace copus {
namespace {

using Scope = ParameterScope;

Parameter gpu(const char* name, double low, double high, double spread,
              std::function<double&(GpuSpec&)> field, double scale = 1) {
  return {name, Scope::kGpu, low, high, spread, 0, scale,
          [field = std::move(field)](ClusterSpec& c, CostOptions&) -> double& {
            return field(c.gpu);
          }};
}

Parameter network(const char* name, double low, double high, double spread, double unit,
                  std::function<double&(NetworkSpec&)> field, double scale = 1) {
  return {name, Scope::kNetwork, low, high, spread, unit, scale,
          [field = std::move(field)](ClusterSpec& c, CostOptions&) -> double& {
            return field(c.network);
          }};
}

Parameter framework(const char* name, double low, double high, double spread, double unit,
                    std::function<double&(CostOptions&)> field, double scale = 1) {
  return {name, Scope::kFramework, low, high, spread, unit, scale,
          [field = std::move(field)](ClusterSpec&, CostOptions& o) -> double& {
            return field(o);
          }};
}

}  // namespace

const std::vector<Parameter>& calibration_parameters() {
  static const std::vector<Parameter> all = {
      gpu("matmul", 0.2, 1, 0.2, [](GpuSpec& g) -> double& { return g.efficiency.matmul; }),
      gpu("matmul_half_n", 1, 2000, 0.7,
          [](GpuSpec& g) -> double& { return g.efficiency.matmul_half_n; }),
      gpu("matmul_half_k", 1, 2000, 0.7,
          [](GpuSpec& g) -> double& { return g.efficiency.matmul_half_k; }),
      gpu("attention_forward", 0.1, 0.9, 0.3,
          [](GpuSpec& g) -> double& { return g.efficiency.attention_forward; }),
      gpu("attention_backward", 0.1, 0.9, 0.3,
          [](GpuSpec& g) -> double& { return g.efficiency.attention_backward; }),
      gpu("memory", 0.3, 1, 0.15, [](GpuSpec& g) -> double& { return g.efficiency.memory; }),
      gpu("link_efficiency", 0.1, 1, 0.2, [](GpuSpec& g) -> double& { return g.link_efficiency; }),
      network("network_efficiency", 0.02, 1, 0.4, 0,
              [](NetworkSpec& n) -> double& { return n.efficiency; }),
      network("network_latency_us", 1, 500, 0.7, 0,
              [](NetworkSpec& n) -> double& { return n.latency.v; }, 1e-6),
      network("network_scale_penalty", 0, 5, 1, 0.2,
              [](NetworkSpec& n) -> double& { return n.scale_penalty; }),
      network("network_congestion", 0, 100, 1, 1,
              [](NetworkSpec& n) -> double& { return n.congestion; }),
      framework("elementwise", 1, 8, 0.5, 0,
                [](CostOptions& o) -> double& { return o.elementwise; }),
      framework("host_layer_forward_us", 10, 2e4, 0.7, 0,
                [](CostOptions& o) -> double& { return o.host_layer_forward.v; }, 1e-6),
      framework("host_layer_backward_us", 10, 2e4, 0.7, 0,
                [](CostOptions& o) -> double& { return o.host_layer_backward.v; }, 1e-6),
      framework("host_collective_us", 0, 5e3, 1, 100,
                [](CostOptions& o) -> double& { return o.host_collective.v; }, 1e-6),
      framework("attention_rate", 0.1, 1.5, 0.3, 0,
                [](CostOptions& o) -> double& { return o.attention_rate; }),
      framework("tp_skew_us", 0, 1e3, 1, 40, [](CostOptions& o) -> double& { return o.tp_skew.v; },
                1e-6),
      framework("tp_overlap", 0, 0.95, 1, 0.2,
                [](CostOptions& o) -> double& { return o.tp_overlap; }),
      framework("overlap_contention", 0, 1, 1, 0.3,
                [](CostOptions& o) -> double& { return o.overlap_contention; }),
      framework("hop_overhead_us", 0, 1e5, 1, 200,
                [](CostOptions& o) -> double& { return o.hop_overhead.v; }, 1e-6),
      framework("pending_layer_us", 0, 1e5, 1, 500,
                [](CostOptions& o) -> double& { return o.pending_layer.v; }, 1e-6),
      framework("pending_ring_step_us", 0, 1e5, 1, 50,
                [](CostOptions& o) -> double& { return o.pending_ring_step.v; }, 1e-6),
      framework("hop_congestion_ms", 0, 1e4, 1, 100,
                [](CostOptions& o) -> double& { return o.hop_congestion.v; }, 1e-3),
      framework("straggler", 0, 0.5, 1, 0.02,
                [](CostOptions& o) -> double& { return o.straggler; }),
      framework("step_overhead_ms", 0.1, 1e4, 1, 0,
                [](CostOptions& o) -> double& { return o.step_overhead.v; }, 1e-3),
  };
  return all;
}

std::string gpu_family(std::string_view gpu) {
  std::string family;
  for (const std::string_view part : split(gpu, '-')) {
    if (part.ends_with("GB") || part == "SXM") continue;
    if (!family.empty()) family += '-';
    family += part;
  }
  return family;
}

std::string scope_key(ParameterScope scope, const ClusterSpec& cluster,
                      const FrameworkProfile& profile) {
  const std::string family = gpu_family(cluster.gpu.name);
  if (scope == ParameterScope::kGpu) return family;
  if (scope == ParameterScope::kFramework) return profile.name;
  return fmt::format("{}, {:.0f} Gb/s", family, cluster.network.node_bandwidth.v * 8e-9);
}

}  // namespace copus
