#include "copus/spec/cluster_spec.h"

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "copus/base/text.h"
#include "copus/spec/cluster_fields.h"

namespace copus {
namespace {

// A visitor that keeps an error about the first field outside its range.
struct RangeCheck {
  std::string prefix = {};
  std::optional<Error> error = std::nullopt;

  void number(std::string_view key, double value, double scale, double low, double high) {
    // The change of unit may move a value at a bound beyond the bound by a rounding error.
    const double shown = value / scale;
    const double slack = 1e-12;
    if (std::isfinite(shown) && shown >= low * (1 - slack) && shown <= high * (1 + slack)) return;
    keep_range(key, shown, low, high);
  }
  void integer(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value >= low && value <= high) return;
    keep_range(key, value, low, high);
  }
  void boolean(std::string_view, bool) {}
  void topology(std::string_view, LinkTopology) {}
  template <typename T>
  void keep_range(std::string_view key, T got, T low, T high) {
    keep(field_error(prefix + std::string(key), "got {}; want {} to {}", got, low, high));
  }
  void keep(Error found) {
    if (!error) error = std::move(found);
  }
};

// Checks that a name is printable, because names appear in one-line errors and in tables.
void check_name(RangeCheck& check, std::string_view key, std::string_view name) {
  bool printable = !name.empty() && name.size() <= 200;
  for (const char c : name) printable = printable && static_cast<unsigned char>(c) >= 0x20;
  if (!printable) {
    check.keep(
        field_error(key, "got {:?}; want 1 to 200 printable characters", name.substr(0, 40)));
  }
}

}  // namespace

std::string_view to_string(Precision p) {
  switch (p) {
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
    case Precision::kFp8:
      return "fp8";
    case Precision::kFp8Current:
      return "fp8_current";
    case Precision::kMxfp8:
      return "mxfp8";
    case Precision::kNvfp4:
      return "nvfp4";
    case Precision::kFp32:
      return "fp32";
  }
  return "?";
}

Result<Precision> parse_precision(std::string_view text) {
  for (const Precision p : kPrecisions) {
    if (text == to_string(p)) return p;
  }
  std::vector<std::string> names;
  for (const Precision p : kPrecisions) names.emplace_back(to_string(p));
  return field_error("precision", "got {:?}; want {}", text.substr(0, 40), join_or(names));
}

std::string_view to_string(LinkTopology t) {
  switch (t) {
    case LinkTopology::kSwitch:
      return "switch";
    case LinkTopology::kCubeMesh:
      return "cube_mesh";
    case LinkTopology::kMesh:
      return "mesh";
    case LinkTopology::kRing:
      return "ring";
    case LinkTopology::kPcie:
      return "pcie";
  }
  return "?";
}

FlopsPerSec GpuSpec::peak(Precision p) const {
  switch (p) {
    case Precision::kBf16:
      return peak_bf16;
    case Precision::kFp16:
      return peak_fp16;
    case Precision::kFp8:
    case Precision::kFp8Current:
      return peak_fp8;
    case Precision::kMxfp8:
      return peak_mxfp8;
    case Precision::kNvfp4:
      return peak_nvfp4;
    case Precision::kFp32:
      return peak_fp32;
  }
  return FlopsPerSec();
}

Result<void> check_precision(const GpuSpec& gpu, Precision p) {
  if (gpu.peak(p).v > 0) {
    if (!is_quantised(p) || gpu.peak(Precision::kBf16).v > 0) return {};
    return field_error(
        "precision",
        "got {} on {}, whose peak_tflops has no bf16; want a bf16 rate too, because attention "
        "and the vocabulary's products run in bf16",
        to_string(p), gpu.name);
  }
  std::vector<std::string> has;
  for (const Precision q : kPrecisions) {
    if (gpu.peak(q).v > 0) has.emplace_back(to_string(q));
  }
  return field_error("precision", "got {}, which {} has no units for; want {}", to_string(p),
                     gpu.name, join_or(has));
}

double congestion_growth(std::int64_t nodes) {
  const double x = std::min(1.0, static_cast<double>(nodes) / 64);
  return x * x * x * x * x;
}

Result<void> ClusterSpec::validate() const {
  RangeCheck check;
  check_name(check, "name", name);
  check_name(check, "gpu", gpu.name);
  check.integer("nodes", nodes, 1, kMaxGpus);
  check.integer("gpus_per_node", gpus_per_node, 1, kMaxGpus);
  if (!check.error && gpus() > kMaxGpus) {
    check.keep(field_error("cluster", "got {}x{} = {} GPUs; want at most {}", nodes, gpus_per_node,
                           gpus(), kMaxGpus));
  }
  fields::visit_network(network, check);
  if (nodes > 1 && !(network.node_bandwidth.v > 0)) {
    check.keep(field_error("node_network_gbps",
                           "got 0; want the rate between the {} nodes, above 0", nodes));
  }
  fields::visit_gpu_essentials(gpu, check);
  fields::visit_gpu_options(gpu, check);
  fields::visit_gpu_surroundings(gpu, check);
  check.prefix = "peak_tflops.";
  fields::visit_peaks(gpu, check);
  check.prefix = "efficiency.";
  fields::visit_efficiency(gpu.efficiency, check);
  bool computes = false;
  for (const Precision p : kPrecisions) computes = computes || gpu.peak(p).v > 0;
  if (!computes) {
    check.keep(field_error("peak_tflops", "got 0 for every precision; want one above 0"));
  }
  if (check.error) return *std::move(check.error);
  return {};
}

Result<ClusterSpec> cluster_of(const GpuSpec& gpu, std::int64_t nodes, std::int64_t gpus_per_node) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node == 0 ? gpu.gpus_per_node : gpus_per_node;
  cluster.gpu = gpu;
  // The GPU's network is that of a node with the usual number of GPUs. A node with fewer GPUs has
  // proportionally fewer network cards.
  cluster.network = gpu.network;
  cluster.network.node_bandwidth =
      gpu.network.node_bandwidth *
      (static_cast<double>(cluster.gpus_per_node) /
       static_cast<double>(std::max<std::int64_t>(1, gpu.gpus_per_node)));
  cluster.name = fmt::format("{}x{}x{}", cluster.nodes, cluster.gpus_per_node, gpu.name);
  COPUS_TRY_VOID(cluster.validate());
  return cluster;
}

}  // namespace copus
