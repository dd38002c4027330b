#include <array>
#include <cmath>
#include <cstdlib>

#include "copus/base/text.h"
#include "copus/spec/cluster_fields.h"
#include "copus/spec/cluster_spec.h"

namespace copus {
namespace {

constexpr std::array kTopologies = {LinkTopology::kSwitch, LinkTopology::kCubeMesh,
                                    LinkTopology::kMesh, LinkTopology::kRing, LinkTopology::kPcie};

// A visitor that sets each field that the JSON object states. An absent field keeps its value, or
// is an error if `required`.
struct Reader {
  FieldReader& from;
  const std::string& where;
  bool required = false;

  bool wanted(std::string_view key) {
    if (required || from.has(key)) return true;
    from.ignore(key);
    return false;
  }
  void number(std::string_view key, double& value, double scale, double low, double high) {
    if (wanted(key)) value = scale * from.number(key, low, high);
  }
  void integer(std::string_view key, std::int64_t& value, std::int64_t low, std::int64_t high) {
    if (wanted(key)) value = from.integer(key, low, high);
  }
  void boolean(std::string_view key, bool& value) {
    if (wanted(key)) value = from.boolean_or(key, value);
  }
  void topology(std::string_view key, LinkTopology& value) {
    if (!wanted(key)) return;
    const std::string text = from.text(key);
    std::vector<std::string> names;
    for (const LinkTopology t : kTopologies) {
      if (text == to_string(t)) {
        value = t;
        return;
      }
      names.emplace_back(to_string(t));
    }
    from.fail(error_in(where, field_error(key, "got {:?}; want {}",
                                          std::string_view(text).substr(0, 40), join_or(names))));
  }
};

// Returns the shortest number that gives `value` back when multiplied by `scale`. A plain division
// can be off in the last digit, and would print 989.4 as 989.4000000000001.
double in_unit(double value, double scale) {
  const double quotient = value / scale;
  const double rounded = std::strtod(fmt::format("{:.15g}", quotient).c_str(), nullptr);
  if (rounded * scale == value) return rounded;
  double candidate = std::nextafter(std::nextafter(quotient, -INFINITY), -INFINITY);
  for (int i = 0; i < 5; ++i, candidate = std::nextafter(candidate, INFINITY)) {
    if (candidate * scale == value) return candidate;
  }
  return quotient;
}

struct Printer {
  Json& to;

  void number(std::string_view key, double value, double scale, double, double) {
    to[std::string(key)] = in_unit(value, scale);
  }
  void integer(std::string_view key, std::int64_t value, std::int64_t, std::int64_t) {
    to[std::string(key)] = value;
  }
  void boolean(std::string_view key, bool value) { to[std::string(key)] = value; }
  void topology(std::string_view key, LinkTopology value) {
    to[std::string(key)] = std::string(to_string(value));
  }
};

// Reads the object under `key` of `outer`, if there is one, with `visit`.
template <typename Visit>
void read_nested(FieldReader& outer, std::string_view key, const std::string& where, Visit visit) {
  const Json& nested = outer.child(key);
  if (nested.is_null()) return;
  const std::string inside = fmt::format("{}: {}", where, key);
  FieldReader inner(nested, inside);
  Reader reader{inner, inside};
  visit(reader);
  inner.refuse_unknown();
  if (auto finished = inner.finish(); !finished) outer.fail(finished.error());
}

// Reads everything about a GPU that a cluster file may override.
void read_gpu(FieldReader& from, GpuSpec& gpu, const std::string& where, bool required) {
  Reader essentials{from, where, required};
  fields::visit_gpu_essentials(gpu, essentials);
  Reader options{from, where};
  fields::visit_gpu_options(gpu, options);
  if (required && !from.has("peak_tflops")) {
    from.fail(error_in(
        where, field_error("peak_tflops", "missing; want an object, as {{\"bf16\": 312}}")));
  }
  read_nested(from, "peak_tflops", where, [&](Reader& r) { fields::visit_peaks(gpu, r); });
  read_nested(from, "efficiency", where,
              [&](Reader& r) { fields::visit_efficiency(gpu.efficiency, r); });
  // These two keys are notes for people.
  from.ignore("note");
  from.ignore("source");
}

}  // namespace

Json gpu_to_json(const GpuSpec& gpu) {
  Json json = Json::object();
  json["name"] = gpu.name;
  Json peaks = Json::object();
  Printer peak_printer{peaks};
  fields::visit_peaks(gpu, peak_printer);
  json["peak_tflops"] = std::move(peaks);
  Printer printer{json};
  fields::visit_gpu_essentials(gpu, printer);
  fields::visit_gpu_options(gpu, printer);
  fields::visit_gpu_surroundings(gpu, printer);
  Json efficiency = Json::object();
  Printer efficiency_printer{efficiency};
  fields::visit_efficiency(gpu.efficiency, efficiency_printer);
  json["efficiency"] = std::move(efficiency);
  return json;
}

Result<GpuSpec> gpu_from_json(const Json& json, const std::string& where) {
  FieldReader from(json, where);
  GpuSpec gpu;
  gpu.name = from.text_or("name", "custom");
  read_gpu(from, gpu, where, /*required=*/true);
  Reader reader{from, where};
  fields::visit_gpu_surroundings(gpu, reader);
  from.refuse_unknown();
  COPUS_TRY_VOID(from.finish());
  return gpu;
}

Result<ClusterSpec> apply_cluster_json(ClusterSpec defaults, const Json& json,
                                       const std::string& where) {
  FieldReader from(json, where);
  ClusterSpec cluster = std::move(defaults);
  cluster.name = from.text_or("name", cluster.name);
  Reader reader{from, where};
  reader.integer("nodes", cluster.nodes, 1, kMaxGpus);
  reader.integer("gpus_per_node", cluster.gpus_per_node, 1, kMaxGpus);
  from.ignore("gpu");  // the caller has read it into `defaults`
  cluster.framework = from.child("framework");
  fields::visit_network(cluster.network, reader);
  read_gpu(from, cluster.gpu, where, /*required=*/false);
  from.refuse_unknown();
  COPUS_TRY_VOID(from.finish());
  if (auto valid = cluster.validate(); !valid) {
    return error_in(where, valid.error());
  }
  return cluster;
}

Json cluster_to_json(const ClusterSpec& cluster) {
  Json json = Json::object();
  json["name"] = cluster.name;
  json["nodes"] = cluster.nodes;
  json["gpus_per_node"] = cluster.gpus_per_node;
  // Write the GPU in full instead of its name, because the reader's catalog may differ.
  json["gpu"] = gpu_to_json(cluster.gpu);
  Printer printer{json};
  fields::visit_network(cluster.network, printer);
  if (!cluster.framework.is_null()) json["framework"] = cluster.framework;
  return json;
}

}  // namespace copus
