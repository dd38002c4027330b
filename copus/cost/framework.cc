#include "copus/cost/framework.h"

#include <algorithm>

#include "copus/base/text.h"
#include "copus/spec/catalog.h"
#include "copus/spec/stage_split.h"

namespace copus {
namespace {

// Returns the number of layers of each chunk under StageBalance::kCost.
std::vector<std::int64_t> layers_by_cost(const ModelSpec& model, std::int64_t chunks) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(chunks), 0);
  const double head = static_cast<double>(model.vocab) * static_cast<double>(model.hidden);
  double total = head;
  // Counts matrices only, not norms.
  const auto cost = [&](std::int64_t layer) {
    return static_cast<double>(model.layer_params(layer) - 2 * model.norm_params());
  };
  for (std::int64_t i = 0; i < model.layers; ++i) total += cost(i);
  double before = 0;
  std::size_t chunk = 0;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    ++layers[chunk];
    before += cost(i);
    const double share = total * static_cast<double>(chunk + 1) / static_cast<double>(chunks);
    if (before >= share && chunk + 1 < layers.size()) ++chunk;
  }
  return layers;
}

}  // namespace

std::vector<std::string> framework_names() { return catalog_framework_names(); }

Result<FrameworkProfile> framework_from_json(const Json& json, const std::string& where) {
  FieldReader fields(json, where);
  FrameworkProfile profile;
  profile.name = fields.text_or("name", where);
  profile.logs_first_rank = fields.boolean_or("logs_first_rank", false);
  const std::string balance = fields.text_or("stage_balance", "even");
  fields.ignore("note");
  fields.ignore("source");
  const Json& options = fields.child("options");
  const Json& early_gpt = fields.child("early_gpt");
  profile.network = fields.child("network");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  if (balance != "even" && balance != "cost") {
    return error_in(where, field_error("stage_balance", "got {}; want even or cost", balance));
  }
  if (!profile.network.is_null()) {
    if (!profile.network.is_object()) {
      return error_in(
          where, field_error("network", "got {}; want an object, as {{\"network_latency_us\": 8}}",
                             profile.network.type_name()));
    }
    for (const auto& [key, value] : profile.network.items()) {
      if (!key.starts_with("network_")) {
        return error_in(
            where,
            field_error("network", "got key {:?}; want network_ keys of a cluster file", key));
      }
    }
    // Applies the keys to a stand-in cluster, so that a wrong key or value is an error here.
    ClusterSpec any;
    any.name = any.gpu.name = "any";
    any.gpu.peak_bf16 = FlopsPerSec(1e12);
    any.gpu.memory = gib(1);
    any.gpu.memory_bandwidth = any.gpu.link_bandwidth = BytesPerSec(1e9);
    COPUS_TRY(any, apply_cluster_json(std::move(any), profile.network, where + ": network"));
  }
  if (balance == "cost") profile.stage_balance = StageBalance::kCost;
  if (!options.is_null()) {
    COPUS_TRY(profile.options, options_from_json(options, where + ": options"));
  }
  if (!early_gpt.is_null()) {
    COPUS_TRY(profile.early_gpt,
              options_from_json(early_gpt, where + ": early_gpt", profile.options));
  }
  return profile;
}

Json framework_to_json(const FrameworkProfile& profile) {
  Json json;
  json["name"] = profile.name;
  json["stage_balance"] = profile.stage_balance == StageBalance::kCost ? "cost" : "even";
  json["logs_first_rank"] = profile.logs_first_rank;
  if (!profile.network.is_null()) json["network"] = profile.network;
  json["options"] = options_to_json(profile.options);
  json["options"].erase("precision");
  if (profile.early_gpt) {
    // Only what differs, so that a change of the options changes early runs too.
    const Json early = options_to_json(*profile.early_gpt), now = options_to_json(profile.options);
    for (const auto& [key, value] : early.items()) {
      if (key != "precision" && value != now.at(key)) json["early_gpt"][key] = value;
    }
  }
  return json;
}

Result<FrameworkProfile> framework_profile(std::string_view name) {
  COPUS_TRY(const std::string text, catalog_framework_text(name));
  const std::string where = std::string(name) + ".json";
  COPUS_TRY(const Json json, parse_json(text, where));
  COPUS_TRY(FrameworkProfile profile, framework_from_json(json, where));
  profile.name = name;
  return profile;
}

std::vector<std::int64_t> stage_layers(const ModelSpec& model, std::int64_t chunks,
                                       StageBalance balance) {
  if (chunks <= 1 || chunks > std::min(model.layers, kMaxChunks)) return {};
  if (balance == StageBalance::kCost) return layers_by_cost(model, chunks);
  if (model.layers % chunks == 0) return {};
  return expand(balance_chunks(model.layers, chunks, 0.5, 0.5), chunks);
}

CostOptions engine_cost_options(bool on_cpus, Precision precision) {
  CostOptions cost;
  cost.precision = precision;
  cost.grad_bytes = 4;
  cost.grad_overlap = GradOverlap::kLastBackward;
  if (on_cpus) {
    cost.host_layer_forward = cost.host_layer_backward = Seconds(0);
    cost.hop_overhead = cost.tp_skew = cost.step_overhead = Seconds(0);
    cost.grad_overlap = GradOverlap::kNone;
    cost.fixed_memory = gib(0.25);
  }
  return cost;
}

}  // namespace copus
