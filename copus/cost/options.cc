#include "copus/cost/options.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "copus/base/text.h"

namespace copus {
namespace {

// One numeric option. `low` and `high` bound its printed value; the field holds the printed value
// times `scale`.
struct NumberOption {
  std::string name;
  double low, high;
  std::function<double&(CostOptions&)> field;
  double scale;
};

const std::vector<NumberOption>& number_options() {
  static const std::vector<NumberOption> options = {
      {"grad_bytes", 0, 8, [](CostOptions& o) -> double& { return o.grad_bytes; }, 1},
      {"optimizer_bytes", 0, 64, [](CostOptions& o) -> double& { return o.optimizer_bytes; }, 1},
      {"attention_rate", 0.01, 10, [](CostOptions& o) -> double& { return o.attention_rate; }, 1},
      {"elementwise", 1, 20, [](CostOptions& o) -> double& { return o.elementwise; }, 1},
      {"overlap_contention", 0, 1, [](CostOptions& o) -> double& { return o.overlap_contention; },
       1},
      {"exposed_bucket", 0, 1, [](CostOptions& o) -> double& { return o.exposed_bucket; }, 1},
      {"tp_overlap", 0, 1, [](CostOptions& o) -> double& { return o.tp_overlap; }, 1},
      {"tp_overlap_te", 0, 1, [](CostOptions& o) -> double& { return o.tp_overlap_te; }, 1},
      {"weight_prefetch", 0, 1, [](CostOptions& o) -> double& { return o.weight_prefetch; }, 1},
      {"zero3_collectives", 1, 1000, [](CostOptions& o) -> double& { return o.zero3_collectives; },
       1},
      {"quantised_gather_bytes", 0.5, 4,
       [](CostOptions& o) -> double& { return o.quantised_gather_bytes; }, 1},
      {"quantised_input_bytes", 0.5, 2,
       [](CostOptions& o) -> double& { return o.quantised_input_bytes; }, 1},
      {"tp_skew_us", 0, 1e6, [](CostOptions& o) -> double& { return o.tp_skew.v; }, 1e-6},
      {"cp_overlap", 0, 1, [](CostOptions& o) -> double& { return o.cp_overlap; }, 1},
      {"ep_overlap", 0, 1, [](CostOptions& o) -> double& { return o.ep_overlap; }, 1},
      {"expert_imbalance", 1, 100, [](CostOptions& o) -> double& { return o.expert_imbalance; }, 1},
      {"expert_capacity", 0, 100, [](CostOptions& o) -> double& { return o.expert_capacity; }, 1},
      {"pp_overlap", 0, 1, [](CostOptions& o) -> double& { return o.pp_overlap; }, 1},
      {"host_layer_forward_us", 0, 1e6,
       [](CostOptions& o) -> double& { return o.host_layer_forward.v; }, 1e-6},
      {"host_layer_backward_us", 0, 1e6,
       [](CostOptions& o) -> double& { return o.host_layer_backward.v; }, 1e-6},
      {"host_collective_us", 0, 1e6, [](CostOptions& o) -> double& { return o.host_collective.v; },
       1e-6},
      {"host_expert_us", 0, 1e6, [](CostOptions& o) -> double& { return o.host_expert.v; }, 1e-6},
      {"host_routing_us", 0, 1e6, [](CostOptions& o) -> double& { return o.host_routing.v; }, 1e-6},
      {"hop_overhead_us", 0, 1e6, [](CostOptions& o) -> double& { return o.hop_overhead.v; }, 1e-6},
      {"pending_layer_us", 0, 1e6, [](CostOptions& o) -> double& { return o.pending_layer.v; },
       1e-6},
      {"pending_ring_step_us", 0, 1e6,
       [](CostOptions& o) -> double& { return o.pending_ring_step.v; }, 1e-6},
      {"hop_congestion_ms", 0, 1e6, [](CostOptions& o) -> double& { return o.hop_congestion.v; },
       1e-3},
      {"straggler", 0, 10, [](CostOptions& o) -> double& { return o.straggler; }, 1},
      {"step_overhead_ms", 0, 1e6, [](CostOptions& o) -> double& { return o.step_overhead.v; },
       1e-3},
      {"extra_state_bytes", 0, 64, [](CostOptions& o) -> double& { return o.extra_state_bytes; },
       1},
      {"run_ahead_layers", 0, 1000, [](CostOptions& o) -> double& { return o.run_ahead_layers; },
       1},
      {"activation_scale", 0.01, 100, [](CostOptions& o) -> double& { return o.activation_scale; },
       1},
      {"logits_bytes", 0, 100, [](CostOptions& o) -> double& { return o.logits_bytes; }, 1},
      {"fixed_memory_gib", 0, 1e3, [](CostOptions& o) -> double& { return o.fixed_memory.v; },
       kGiB},
      {"fragmentation", 0, 10, [](CostOptions& o) -> double& { return o.fragmentation; }, 1},
      {"memory_margin", 0, 0.9, [](CostOptions& o) -> double& { return o.memory_margin; }, 1},
  };
  return options;
}

// One option whose values are words, in the order of its enumerators.
struct WordOption {
  std::string name;
  std::vector<std::string> words;
  std::function<std::size_t(const CostOptions&)> get;
  std::function<void(CostOptions&, std::size_t)> set;
};

template <typename Enum>
WordOption word_option(std::string name, Enum CostOptions::*field, std::vector<std::string> words) {
  return {std::move(name), std::move(words),
          [field](const CostOptions& o) { return static_cast<std::size_t>(o.*field); },
          [field](CostOptions& o, std::size_t i) { o.*field = static_cast<Enum>(i); }};
}

const std::vector<WordOption>& word_options() {
  static const std::vector<WordOption> options = {
      word_option("attention", &CostOptions::attention, {"auto", "fused", "unfused"}),
      word_option("grad_overlap", &CostOptions::grad_overlap,
                  {"auto", "none", "last_backward", "replicated"}),
      word_option("stage_cut", &CostOptions::stage_cut, {"layers", "work"}),
      word_option("expert_dispatch", &CostOptions::expert_dispatch, {"alltoall", "deduplicated"}),
  };
  return options;
}

// Returns an assumption's name for errors.
std::string named(std::string_view assumption) { return fmt::format("--assume {}", assumption); }

}  // namespace

Result<void> check_ring_attention(const CostOptions& options, const GpuSpec& gpu, std::int64_t cp) {
  if (cp <= 1 || runs_fused_attention(options, gpu)) return {};
  if (options.attention == AttentionKernel::kUnfused) {
    return field_error("cp",
                       "got {} with attention=unfused; want 1, or fused attention, which a split "
                       "sequence needs",
                       cp);
  }
  return field_error(
      "cp",
      "got {}; want 1, because {} has no fused attention, which a split sequence needs "
      "(if you have such a kernel: --assume attention=fused)",
      cp, gpu.name);
}

Result<CostOptions> apply_assumptions(CostOptions options, std::string_view text) {
  if (text.empty()) return options;
  std::vector<std::string_view> seen;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return field_error("--assume", "got '{}'; want name=value", item);
    const std::string_view name = item.substr(0, equals), value = item.substr(equals + 1);
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return field_error(named(name), "got it twice; want it once");
    }
    seen.push_back(name);
    bool found = false;
    for (const WordOption& option : word_options()) {
      if (option.name != name) continue;
      const auto word = std::find(option.words.begin(), option.words.end(), value);
      if (word == option.words.end()) {
        return field_error(named(name), "got {}; want {}", value, join_or(option.words));
      }
      option.set(options, static_cast<std::size_t>(word - option.words.begin()));
      found = true;
    }
    for (const NumberOption& option : number_options()) {
      if (option.name != name) continue;
      COPUS_TRY(const double number, parse_number(value, named(name), option.low, option.high));
      option.field(options) = number * option.scale;
      found = true;
    }
    if (!found) {
      std::vector<std::string> names;
      for (const WordOption& option : word_options()) names.push_back(option.name);
      for (const NumberOption& option : number_options()) names.push_back(option.name);
      std::vector<std::string> near = nearest_names(name, names);
      return field_error("--assume", "got unknown option '{}'; want {}", name,
                         join_or(near.empty() ? names : near));
    }
  }
  return options;
}

Result<CostOptions> options_from_json(const Json& json, const std::string& where,
                                      CostOptions options) {
  if (!json.is_object()) {
    return make_error("{}: got {}; want an object, as {{\"grad_bytes\": 4}}", where,
                      json.type_name());
  }
  for (const auto& [name, value] : json.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text.find(',') != std::string::npos) {
      return error_in(where, field_error(name, "got {}; want one value", text));
    }
    const Result<CostOptions> applied =
        apply_assumptions(options, fmt::format("{}={}", name, text));
    if (!applied) return error_in(where, applied.error());
    options = *applied;
  }
  return options;
}

Json options_to_json(const CostOptions& options) {
  Json json;
  json["precision"] = to_string(options.precision);
  for (const WordOption& option : word_options())
    json[option.name] = option.words[option.get(options)];
  CostOptions copy = options;
  for (const NumberOption& option : number_options())
    json[option.name] = option.field(copy) / option.scale;
  return json;
}

}  // namespace copus
