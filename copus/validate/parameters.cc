#include "copus/validate/parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "copus/base/text.h"

namespace copus {
namespace {

using Scope = ParameterScope;
constexpr double kCatalog = Parameter::kNoPrior;

Parameter gpu(const char* name, double low, double high, double prior, double spread,
              std::function<double&(GpuSpec&)> field, double scale = 1) {
  return {
      name,
      ParameterOf::kTime,
      Scope::kGpu,
      low,
      high,
      prior,
      spread,
      0,
      scale,
      [field = std::move(field)](ClusterSpec& c, CostOptions&) -> double& { return field(c.gpu); }};
}

Parameter network(const char* name, double low, double high, double prior, double spread,
                  double unit, std::function<double&(NetworkSpec&)> field, double scale = 1) {
  return {name,
          ParameterOf::kTime,
          Scope::kNetwork,
          low,
          high,
          prior,
          spread,
          unit,
          scale,
          [field = std::move(field)](ClusterSpec& c, CostOptions&) -> double& {
            return field(c.network);
          }};
}

Parameter framework(const char* name, double low, double high, double prior, double spread,
                    double unit, std::function<double&(CostOptions&)> field, double scale = 1) {
  return {name,
          ParameterOf::kTime,
          Scope::kFramework,
          low,
          high,
          prior,
          spread,
          unit,
          scale,
          [field = std::move(field)](ClusterSpec&, CostOptions& o) -> double& { return field(o); }};
}

Parameter host_floor(const char* name, double low, double high, double prior, double spread,
                     double unit, std::function<double&(CostOptions&)> field) {
  Parameter parameter = framework(name, low, high, prior, spread, unit, std::move(field), 1e-6);
  parameter.is_floor = true;
  return parameter;
}

Parameter memory(const char* name, double low, double high, double prior, double spread,
                 double unit, std::function<double&(CostOptions&)> field, double scale = 1) {
  Parameter parameter = framework(name, low, high, prior, spread, unit, std::move(field), scale);
  parameter.of = ParameterOf::kMemory;
  return parameter;
}

Parameter logits_bytes() {
  Parameter parameter = memory("logits_bytes", 1, 30, 6, 0.4, 6,
                               [](CostOptions& o) -> double& { return o.logits_bytes; });
  parameter.when_zero = default_logit_bytes;
  return parameter;
}

}  // namespace

const std::vector<Parameter>& calibration_parameters() {
  static const std::vector<Parameter> all = {
      gpu("matmul", 0.2, 1, 0.7, 0.2, [](GpuSpec& g) -> double& { return g.efficiency.matmul; }),
      gpu("matmul_half_n", 1, 2000, 300, 0.7,
          [](GpuSpec& g) -> double& { return g.efficiency.matmul_half_n; }),
      gpu("matmul_half_k", 1, 2000, 300, 0.7,
          [](GpuSpec& g) -> double& { return g.efficiency.matmul_half_k; }),
      gpu("attention_forward", 0.1, 0.9, 0.6, 0.3,
          [](GpuSpec& g) -> double& { return g.efficiency.attention_forward; }),
      gpu("attention_backward", 0.1, 0.9, 0.5, 0.3,
          [](GpuSpec& g) -> double& { return g.efficiency.attention_backward; }),
      gpu("memory", 0.3, 0.95, 0.8, 0.15,
          [](GpuSpec& g) -> double& { return g.efficiency.memory; }),
      // Measured separately from training, with collectives only.
      gpu("link_efficiency", 0.1, 1, kCatalog, 0.05,
          [](GpuSpec& g) -> double& { return g.link_efficiency; }),
      network("network_efficiency", 0.02, 1, 0.85, 0.4, 0,
              [](NetworkSpec& n) -> double& { return n.efficiency; }),
      network(
          "network_latency_us", 1, 500, 8, 0.7, 0,
          [](NetworkSpec& n) -> double& { return n.latency.v; }, 1e-6),
      network("network_scale_penalty", 0, 5, 0, 1, 0.2,
              [](NetworkSpec& n) -> double& { return n.scale_penalty; }),
      network("network_congestion", 0, 100, 0, 1, 1,
              [](NetworkSpec& n) -> double& { return n.congestion; }),
      framework("elementwise", 1, 8, 1.5, 0.5, 0,
                [](CostOptions& o) -> double& { return o.elementwise; }),
      host_floor("host_layer_forward_us", 10, 2e4, 400, 0.7, 0,
                 [](CostOptions& o) -> double& { return o.host_layer_forward.v; }),
      host_floor("host_layer_backward_us", 10, 2e4, 500, 0.7, 0,
                 [](CostOptions& o) -> double& { return o.host_layer_backward.v; }),
      host_floor("host_collective_us", 0, 5e3, 0, 1, 100,
                 [](CostOptions& o) -> double& { return o.host_collective.v; }),
      host_floor("host_expert_us", 0, 5e3, 0, 1, 100,
                 [](CostOptions& o) -> double& { return o.host_expert.v; }),
      framework("attention_rate", 0.1, 1.5, 1, 0.3, 0,
                [](CostOptions& o) -> double& { return o.attention_rate; }),
      framework(
          "tp_skew_us", 0, 1e3, 40, 1, 40, [](CostOptions& o) -> double& { return o.tp_skew.v; },
          1e-6),
      framework("tp_overlap", 0, 0.95, 0, 1, 0.2,
                [](CostOptions& o) -> double& { return o.tp_overlap; }),
      framework("tp_overlap_te", 0, 0.95, 0, 1, 0.2,
                [](CostOptions& o) -> double& { return o.tp_overlap_te; }),
      framework("overlap_contention", 0, 1, 0.2, 1, 0.3,
                [](CostOptions& o) -> double& { return o.overlap_contention; }),
      framework(
          "hop_overhead_us", 0, 1e5, 120, 1, 200,
          [](CostOptions& o) -> double& { return o.hop_overhead.v; }, 1e-6),
      host_floor("pending_layer_us", 0, 1e5, 0, 1, 500,
                 [](CostOptions& o) -> double& { return o.pending_layer.v; }),
      host_floor("pending_ring_step_us", 0, 1e5, 0, 1, 50,
                 [](CostOptions& o) -> double& { return o.pending_ring_step.v; }),
      framework(
          "hop_congestion_ms", 0, 1e4, 0, 1, 100,
          [](CostOptions& o) -> double& { return o.hop_congestion.v; }, 1e-3),
      framework("straggler", 0, 0.5, 0, 1, 0.02,
                [](CostOptions& o) -> double& { return o.straggler; }),
      framework(
          "step_overhead_ms", 0.1, 1e4, 5, 1, 0,
          [](CostOptions& o) -> double& { return o.step_overhead.v; }, 1e-3),
      memory("extra_state_bytes", 0, 16, 0, 1, 2,
             [](CostOptions& o) -> double& { return o.extra_state_bytes; }),
      memory("activation_scale", 0.2, 5, 1, 0.3, 0,
             [](CostOptions& o) -> double& { return o.activation_scale; }),
      memory("run_ahead_layers", 0, 200, 0, 1, 20,
             [](CostOptions& o) -> double& { return o.run_ahead_layers; }),
      logits_bytes(),
      memory(
          "fixed_memory_gib", 0.05, 10, 1, 0.5, 0,
          [](CostOptions& o) -> double& { return o.fixed_memory.v; }, kGiB),
  };
  return all;
}

void set_parameter(const Parameter& parameter, double value, ClusterSpec& cluster,
                   FrameworkProfile& profile) {
  parameter.field(cluster, profile.options) = value * parameter.scale;
  if (profile.early_gpt) parameter.field(cluster, *profile.early_gpt) = value * parameter.scale;
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
  std::string family = gpu_family(cluster.gpu.name);
  if (scope == ParameterScope::kGpu) return family;
  if (scope == ParameterScope::kFramework) return profile.name;
  return fmt::format("{}, {:g} Gb/s, {}", family,
                     cluster.network.node_bandwidth / gigabits_per_s(1), profile.name);
}

}  // namespace copus
