// Lists the fields of GpuSpec and NetworkSpec once, with key, unit and sane range. Reading,
// printing and validating walk the same lists, so that none of them can forget a field. Private to
// copus/spec.
//
// A visitor has number(key, value, scale, low, high), integer(key, value, low, high), boolean(key,
// value) and topology(key, value). The value is in SI units, and the range is in the unit of the
// key: value = scale * the number in the file.
#pragma once

#include "copus/spec/cluster_spec.h"

namespace copus::fields {

// The limits are generous on purpose. They catch a wrong unit (bytes for gigabytes); they do not
// judge hardware.
constexpr double kMaxRate = 1e9;
constexpr double kMaxMicroseconds = 1e7;
constexpr double kMinShare = 1e-3;

// `Gpu` is GpuSpec or const GpuSpec; likewise below.
template <typename Gpu, typename Visitor>
void visit_peaks(Gpu& gpu, Visitor& visit) {
  visit.number("bf16", gpu.peak_bf16.v, 1e12, 0, kMaxRate);
  visit.number("fp16", gpu.peak_fp16.v, 1e12, 0, kMaxRate);
  visit.number("fp8", gpu.peak_fp8.v, 1e12, 0, kMaxRate);
  visit.number("mxfp8", gpu.peak_mxfp8.v, 1e12, 0, kMaxRate);
  visit.number("nvfp4", gpu.peak_nvfp4.v, 1e12, 0, kMaxRate);
  visit.number("fp32", gpu.peak_fp32.v, 1e12, 0, kMaxRate);
}

template <typename Efficiency, typename Visitor>
void visit_efficiency(Efficiency& efficiency, Visitor& visit) {
  visit.number("matmul", efficiency.matmul, 1, kMinShare, 1);
  visit.number("matmul_half_m", efficiency.matmul_half_m, 1, 0, 1e6);
  visit.number("matmul_half_n", efficiency.matmul_half_n, 1, 0, 1e6);
  visit.number("matmul_half_k", efficiency.matmul_half_k, 1, 0, 1e6);
  visit.number("attention_forward", efficiency.attention_forward, 1, kMinShare, 1);
  visit.number("attention_backward", efficiency.attention_backward, 1, kMinShare, 1);
  visit.number("memory", efficiency.memory, 1, kMinShare, 1);
  visit.number("launch_us", efficiency.launch.v, 1e-6, 0, kMaxMicroseconds);
}

// The fields that a GPU must have in a catalog entry.
template <typename Gpu, typename Visitor>
void visit_gpu_essentials(Gpu& gpu, Visitor& visit) {
  visit.number("memory_gib", gpu.memory.v, kGiB, kMinShare, 1e6);
  visit.number("memory_bandwidth_gbs", gpu.memory_bandwidth.v, 1e9, kMinShare, kMaxRate);
  visit.number("link_bandwidth_gbs", gpu.link_bandwidth.v, 1e9, kMinShare, kMaxRate);
}

template <typename Gpu, typename Visitor>
void visit_gpu_options(Gpu& gpu, Visitor& visit) {
  visit.boolean("fused_attention", gpu.fused_attention);
  visit.topology("link_topology", gpu.link_topology);
  visit.number("link_efficiency", gpu.link_efficiency, 1, kMinShare, 1);
  visit.number("link_latency_us", gpu.link_latency.v, 1e-6, 0, kMaxMicroseconds);
  visit.number("link_base_latency_us", gpu.link_base_latency.v, 1e-6, 0, kMaxMicroseconds);
  visit.number("in_network_reduction", gpu.in_network_reduction, 1, 1, 16);
}

template <typename Network, typename Visitor>
void visit_network(Network& network, Visitor& visit) {
  visit.number("node_network_gbps", network.node_bandwidth.v, 1e9 / 8, 0, kMaxRate);
  visit.number("network_efficiency", network.efficiency, 1, kMinShare, 1);
  visit.number("network_latency_us", network.latency.v, 1e-6, 0, kMaxMicroseconds);
  visit.number("network_base_latency_us", network.base_latency.v, 1e-6, 0, kMaxMicroseconds);
  visit.number("network_scale_penalty", network.scale_penalty, 1, 0, 100);
  visit.number("network_congestion", network.congestion, 1, 0, 1e3);
}

// The usual node and network of a GPU. In a cluster file the same keys describe the cluster itself.
template <typename Gpu, typename Visitor>
void visit_gpu_surroundings(Gpu& gpu, Visitor& visit) {
  visit.integer("gpus_per_node", gpu.gpus_per_node, 1, kMaxGpus);
  visit_network(gpu.network, visit);
}

}  // namespace copus::fields
