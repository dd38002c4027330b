// Catalog: GPUs, clusters, frameworks and models by name. The folder catalog/ is embedded in the
// binary. A folder of the same layout that set_catalog_dir() names (in the program, the
// COPUS_CATALOG environment variable) takes precedence.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/spec/cluster_spec.h"

namespace copus {

// Sets the catalog folder. Call it at start-up, before any look-up. Not thread-safe.
void set_catalog_dir(std::string dir);

std::vector<std::string> catalog_model_names();
std::vector<std::string> catalog_gpu_names();
std::vector<std::string> catalog_cluster_names();
std::vector<std::string> catalog_framework_names();

// Returns a model's Hugging Face config.json as text. The error lists the nearest names.
Result<std::string> catalog_model_text(std::string_view name);
// Returns a framework's profile as JSON text (cost/framework.h).
Result<std::string> catalog_framework_text(std::string_view name);
// Returns how far predictions are off, as JSON text (cost/spread.h).
Result<std::string> catalog_spreads_text();
Result<GpuSpec> catalog_gpu(std::string_view name);

// Loads a cluster. `text` is like "4x8xH100-80GB-SXM", a catalog name, or the path of a cluster
// file.
Result<ClusterSpec> load_cluster(std::string_view text);
// Reads the content of a cluster file.
Result<ClusterSpec> cluster_from_json(const Json& json, const std::string& where);

}  // namespace copus
