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

namespace {

Result<UsualRule> usual_rule_from_json(const Json& json, const std::string& where) {
  UsualRule rule;
  FieldReader fields(json, where);
  rule.text = fields.text("text");
  rule.first_that_fits = fields.boolean_or("first_that_fits", false);
  fields.ignore("source");
  const auto list = [&](std::string_view key, auto&& add) {
    const Json& entries = fields.child(key);
    bool right = entries.is_array() && !entries.empty();
    for (const Json& entry : entries) right = right && add(entry);
    return right;
  };
  rule.zero.clear();
  rule.grow.clear();
  const bool stages = list("zero", [&](const Json& entry) {
    const bool right = entry.is_number_integer() && entry >= 0 && entry <= 3;
    if (right) rule.zero.push_back(entry.get<int>());
    return right;
  });
  if (!stages) fields.fail(error_in(where, field_error("zero", "want a list of 0 to 3")));
  const bool grows = list("grow", [&](const Json& entry) {
    for (const PlanField field : {PlanField::kTp, PlanField::kPp, PlanField::kCp}) {
      if (entry == name_of(field)) rule.grow.push_back(field);
    }
    return entry == "tp" || entry == "pp" || entry == "cp";
  });
  if (!grows) fields.fail(error_in(where, field_error("grow", "want a list of tp, pp and cp")));
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  return rule;
}

Result<std::vector<EngineModel>> models_from_json(const Json& json, const std::string& where) {
  std::vector<EngineModel> models;
  if (!json.is_array() && !json.is_null()) {
    return error_in(where, field_error("models", "got {}; want a list", json.type_name()));
  }
  for (const Json& entry : json) {
    FieldReader fields(entry, where + ": models");
    EngineModel model;
    model.model = fields.text("model");
    model.name = fields.text("name");
    for (const Json& word : fields.child("precision")) {
      COPUS_TRY(const Precision precision,
                parse_precision(word.is_string() ? word.get<std::string>() : word.dump()));
      model.precision.add(static_cast<int>(precision));
    }
    fields.refuse_unknown();
    COPUS_TRY_VOID(fields.finish());
    models.push_back(std::move(model));
  }
  return models;
}

Json models_to_json(const std::vector<EngineModel>& models) {
  Json list = Json::array();
  for (const EngineModel& model : models) {
    Json precisions = Json::array();
    for (const Precision precision : kPrecisions) {
      if (model.precision.has(precision)) precisions.push_back(to_string(precision));
    }
    list.push_back({{"model", model.model}, {"name", model.name}, {"precision", precisions}});
  }
  return list;
}

Json usual_rule_to_json(const UsualRule& rule) {
  Json json;
  json["text"] = rule.text;
  json["first_that_fits"] = rule.first_that_fits;
  json["zero"] = rule.zero;
  for (const PlanField field : rule.grow) json["grow"].push_back(name_of(field));
  return json;
}

}  // namespace

std::vector<std::string> framework_names() { return catalog_framework_names(); }

Result<FrameworkProfile> framework_from_json(const Json& json, const std::string& where) {
  FieldReader fields(json, where);
  FrameworkProfile profile;
  profile.name = fields.text_or("name", where);
  profile.title = fields.text_or("title", profile.name);
  profile.logs_first_rank = fields.boolean_or("logs_first_rank", false);
  const std::string balance = fields.text_or("stage_balance", "even");
  fields.ignore("note");
  fields.ignore("source");
  const Json& options = fields.child("options");
  const Json& early_gpt = fields.child("early_gpt");
  profile.network = fields.child("network");
  profile.analogy = fields.text_or("analogy", "");
  const Json& limits = fields.child("limits");
  const Json& usual = fields.child("usual_rule");
  const Json& models = fields.child("models");
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
  if (!limits.is_null()) {
    COPUS_TRY(profile.limits, engine_limits_from_json(limits, where + ": limits"));
    profile.limits->engine = profile.name;
  }
  if (!usual.is_null()) {
    COPUS_TRY(profile.usual, usual_rule_from_json(usual, where + ": usual_rule"));
  }
  COPUS_TRY(profile.models, models_from_json(models, where));
  if (!profile.analogy.empty()) {
    COPUS_TRY(const std::string text, catalog_framework_text(profile.analogy));
    COPUS_TRY(const Json nearest, parse_json(text, profile.analogy + ".json"));
    if (nearest.contains("analogy")) {
      return error_in(where, field_error("analogy", "got {}; want a framework with runs of its own",
                                         profile.analogy));
    }
    COPUS_TRY(const FrameworkProfile other, framework_from_json(nearest, profile.analogy));
    profile.options = other.options;
  }
  if (!options.is_null()) {
    COPUS_TRY(profile.options, options_from_json(options, where + ": options", profile.options));
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
  json["title"] = profile.title;
  json["stage_balance"] = profile.stage_balance == StageBalance::kCost ? "cost" : "even";
  json["logs_first_rank"] = profile.logs_first_rank;
  if (!profile.network.is_null()) json["network"] = profile.network;
  if (profile.limits) json["limits"] = engine_limits_to_json(*profile.limits);
  json["usual_rule"] = usual_rule_to_json(profile.usual);
  if (!profile.models.empty()) json["models"] = models_to_json(profile.models);
  if (!profile.analogy.empty()) json["analogy"] = profile.analogy;
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
  if (profile.limits) profile.limits->engine = name;
  return profile;
}

std::vector<std::int64_t> stage_layers(const ModelSpec& model, std::int64_t chunks,
                                       StageBalance balance) {
  if (chunks <= 1 || chunks > std::min(model.layers + 2, kMaxChunks)) return {};
  if (balance == StageBalance::kCost && chunks <= model.layers)
    return layers_by_cost(model, chunks);
  if (model.layers % chunks == 0) return {};
  // An engine that counts embedding and head as layers divides all of them evenly.
  const double ends = (model.layers + 2) % chunks == 0 ? 1 : 0.5;
  return expand(balance_chunks(model.layers, chunks, ends, ends), chunks);
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
