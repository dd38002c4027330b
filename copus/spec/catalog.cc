#include "copus/spec/catalog.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>
#include <system_error>

#include "copus/base/text.h"
#include "copus/base/whole_file.h"
#include "copus/spec/embedded_file.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

std::string& catalog_dir() {
  static std::string dir;
  return dir;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

void add_name(std::vector<std::string>& names, std::string name) {
  const auto same = [&](const std::string& n) { return equal_ignoring_case(n, name); };
  if (std::none_of(names.begin(), names.end(), same)) names.push_back(std::move(name));
}

// Returns the names of all files FOLDER/NAME.json, sorted, each once.
std::vector<std::string> names_in(std::string_view folder) {
  std::vector<std::string> names;
  if (!catalog_dir().empty()) {
    std::error_code ignored;  // a catalog folder need not have every part
    for (fs::directory_iterator it(fs::path(catalog_dir()) / folder, ignored), end;
         !ignored && it != end; it.increment(ignored)) {
      if (it->path().extension() == ".json") add_name(names, it->path().stem().string());
    }
  }
  for (const EmbeddedFile& file : embedded_catalog()) {
    std::string_view path = file.path;
    if (!path.starts_with(folder) || path.substr(folder.size(), 1) != "/") continue;
    path.remove_prefix(folder.size() + 1);
    if (path.ends_with(".json")) path.remove_suffix(5);
    add_name(names, std::string(path));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns "A, B or C": the names nearest to `name`, or all names if none is near.
std::string suggestions(std::string_view name, const std::vector<std::string>& names) {
  const std::vector<std::string> nearest = nearest_names(name.substr(0, 200), names);
  return join_or(nearest.empty() ? names : nearest);
}

// Returns the text of a file by its path in the catalog. `kind` names it in errors.
Result<std::string> content_of(const std::string& relative, std::string_view kind) {
  if (!catalog_dir().empty()) {
    const fs::path path = fs::path(catalog_dir()) / relative;
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) {
      return read_whole_file(path.string(), "JSON", kMaxJsonBytes);
    }
  }
  for (const EmbeddedFile& file : embedded_catalog()) {
    if (file.path == relative) return std::string(file.content);
  }
  return field_error(kind, "{} vanished from the catalog folder", relative);
}

// Returns the text of FOLDER/NAME.json. `name` must be one of names_in(folder), ignoring case, so
// it cannot smuggle in a path.
Result<std::string> file_text(std::string_view folder, std::string_view kind,
                              std::string_view name) {
  const std::vector<std::string> names = names_in(folder);
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& n) {
    return equal_ignoring_case(n, name);
  });
  if (found == names.end()) {
    return field_error(kind, "got {:?}; want {}", name.substr(0, 80), suggestions(name, names));
  }
  const std::string relative = fmt::format("{}/{}.json", folder, *found);
  return content_of(relative, kind);
}

const Json& embedded_gpus() {
  static const Json gpus = [] {
    for (const EmbeddedFile& file : embedded_catalog()) {
      if (file.path != "gpus.json") continue;
      auto parsed = parse_json(file.content, "catalog/gpus.json");
      COPUS_CHECK(parsed.has_value() && parsed->is_object());
      return std::move(parsed).value();
    }
    return Json(Json::object());
  }();
  return gpus;
}

// Returns the gpus.json of the catalog folder, or an empty object if there is none.
Result<Json> own_gpus() {
  if (catalog_dir().empty()) return Json(Json::object());
  const fs::path path = fs::path(catalog_dir()) / "gpus.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Json(Json::object());
  COPUS_TRY(Json gpus, read_json_file(path.string()));
  if (!gpus.is_object()) {
    return make_error("{}: got {}; want an object keyed by GPU name", path.string(),
                      gpus.type_name());
  }
  return gpus;
}

Result<ClusterSpec> cluster_from_text(std::string_view text, const std::string& where) {
  COPUS_TRY(const Json json, parse_json(text, where));
  return cluster_from_json(json, where);
}

// Whether `text` begins like "4x". Then it is read as NODESxGPUSxGPU, even if the rest is wrong.
bool looks_like_shape(std::string_view text) {
  const std::size_t x = text.find_first_of("xX");
  if (x == std::string_view::npos || x == 0) return false;
  const std::string_view number = text.substr(0, x);
  return number.find_first_not_of("0123456789+-.,_ ") == std::string_view::npos;
}

Result<ClusterSpec> cluster_from_shape(std::string_view text) {
  const std::size_t first = text.find_first_of("xX");
  const std::size_t second = text.find_first_of("xX", first + 1);
  const std::string_view middle =
      second == std::string_view::npos ? "" : text.substr(first + 1, second - first - 1);
  const bool middle_is_number =
      !middle.empty() && middle.find_first_not_of("0123456789+-.,_ ") == std::string_view::npos;
  if (!middle_is_number) {
    return field_error("cluster", "got {:?}; want NODESxGPUSxGPU, as 4x8xH100-80GB-SXM",
                       text.substr(0, 80));
  }
  COPUS_TRY(const std::int64_t nodes,
            parse_integer(text.substr(0, first), "cluster: nodes", 1, kMaxGpus));
  COPUS_TRY(const std::int64_t per_node,
            parse_integer(middle, "cluster: GPUs per node", 1, kMaxGpus));
  // Multiply as doubles, because the product of two mistyped counts may not fit 64 bits.
  const double total = static_cast<double>(nodes) * static_cast<double>(per_node);
  if (total > static_cast<double>(kMaxGpus)) {
    return field_error("cluster", "got {}x{} = {:.0f} GPUs; want at most {}", nodes, per_node,
                       total, kMaxGpus);
  }
  COPUS_TRY(const GpuSpec gpu, catalog_gpu(text.substr(second + 1)));
  return cluster_of(gpu, nodes, per_node);
}

}  // namespace

void set_catalog_dir(std::string dir) { catalog_dir() = std::move(dir); }

std::vector<std::string> catalog_model_names() { return names_in("models"); }
std::vector<std::string> catalog_cluster_names() { return names_in("clusters"); }
std::vector<std::string> catalog_framework_names() { return names_in("frameworks"); }

std::vector<std::string> catalog_gpu_names() {
  std::vector<std::string> names;
  if (auto own = own_gpus(); own) {
    for (const auto& [name, entry] : own->items()) add_name(names, name);
  }
  for (const auto& [name, entry] : embedded_gpus().items()) add_name(names, name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> catalog_model_text(std::string_view name) {
  return file_text("models", "model", name);
}

Result<std::string> catalog_framework_text(std::string_view name) {
  return file_text("frameworks", "framework", name);
}

Result<std::string> catalog_spreads_text() { return content_of("spreads.json", "spreads"); }

Result<GpuSpec> catalog_gpu(std::string_view name) {
  COPUS_TRY(const Json own, own_gpus());
  for (const Json* gpus : {&own, &embedded_gpus()}) {
    for (const auto& [key, entry] : gpus->items()) {
      if (!equal_ignoring_case(key, name)) continue;
      COPUS_TRY(GpuSpec gpu, gpu_from_json(entry, fmt::format("gpus.json: {}", key)));
      gpu.name = key;
      return gpu;
    }
  }
  return field_error("gpu", "got {:?}; want {}", name.substr(0, 80),
                     suggestions(name, catalog_gpu_names()));
}

Result<ClusterSpec> cluster_from_json(const Json& json, const std::string& where) {
  FieldReader from(json, where);
  const std::int64_t nodes = from.integer("nodes", 1, kMaxGpus);
  const std::int64_t per_node = from.integer_or("gpus_per_node", 0, 1, kMaxGpus);
  const Json& entry = from.child("gpu");
  COPUS_TRY_VOID(from.finish());
  GpuSpec gpu;
  if (entry.is_string()) {
    auto found = catalog_gpu(entry.get_ref<const std::string&>());
    if (!found) return error_in(where, found.error());
    gpu = std::move(found).value();
  } else if (entry.is_object()) {
    COPUS_TRY(gpu, gpu_from_json(entry, where + ": gpu"));
  } else {
    return error_in(
        where,
        field_error("gpu", "{}; want a catalog name, as H100-80GB-SXM, or an object",
                    entry.is_null() ? "missing" : fmt::format("got a {}", entry.type_name())));
  }
  // cluster_of() would validate too early: the file may have fields that the GPU's entry leaves
  // out, so only the complete cluster is validated.
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = per_node == 0 ? gpu.gpus_per_node : per_node;
  cluster.network = gpu.network;
  cluster.name = fmt::format("{}x{}x{}", cluster.nodes, cluster.gpus_per_node, gpu.name);
  cluster.gpu = std::move(gpu);
  return apply_cluster_json(std::move(cluster), json, where);
}

Result<ClusterSpec> load_cluster(std::string_view text) {
  if (looks_like_shape(text)) return cluster_from_shape(text);
  std::error_code ignored;
  const bool is_path = text.ends_with(".json") || text.find('/') != std::string_view::npos ||
                       fs::is_regular_file(fs::path(text), ignored);
  if (is_path) {
    const std::string path(text);
    COPUS_TRY(const Json json, read_json_file(path));
    return cluster_from_json(json, path);
  }
  auto content = file_text("clusters", "cluster", text);
  if (!content) {
    Error error = content.error();
    error.message += ", a cluster file, or NODESxGPUSxGPU as 4x8xH100-80GB-SXM";
    return error;
  }
  return cluster_from_text(*content, std::string(text) + ".json");
}

}  // namespace copus
