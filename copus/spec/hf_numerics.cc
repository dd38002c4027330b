#include "copus/spec/hf_numerics.h"

#include <utility>

namespace copus {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

// Reads an activation by its name in transformers' table of activations.
Activation read_activation(FieldReader& fields, const std::string& where, const char* key,
                           Activation fallback) {
  const std::string name = fields.text_or(key, "");
  if (name.empty()) return fallback;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  fields.fail(error_in(
      where,
      field_error(key, "got \"{}\"; want silu (or swish), gelu or gelu_new (or gelu_pytorch_tanh)",
                  printable(name))));
  return fallback;
}

RopeScaling scaling_from(FieldReader& fields, const std::string& where) {
  RopeScaling scaling;
  std::string kind = fields.text_or("rope_type", "");
  if (kind.empty()) kind = fields.text_or("type", "default");
  if (kind == "default") return scaling;
  if (kind == "linear") {
    scaling.kind = RopeScaling::kLinear;
    scaling.factor = fields.number("factor", 1, kMaxFactor);
    return scaling;
  }
  if (kind != "llama3") {
    scaling.kind = RopeScaling::kOther;
    scaling.other = printable(std::move(kind));
    return scaling;
  }
  scaling.kind = RopeScaling::kLlama3;
  scaling.factor = fields.number("factor", 1, kMaxFactor);
  scaling.low_freq_factor = fields.number("low_freq_factor", 1e-6, kMaxFactor);
  scaling.high_freq_factor = fields.number("high_freq_factor", 1e-6, kMaxFactor);
  scaling.original_max_positions =
      fields.integer("original_max_position_embeddings", 1, kMaxPositions);
  // Frequencies between the two factors are interpolated, with their difference as the divisor.
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    fields.fail(error_in(
        where, field_error("high_freq_factor", "got {:g}; want more than low_freq_factor ({:g})",
                           scaling.high_freq_factor, scaling.low_freq_factor)));
  }
  return scaling;
}

}  // namespace

std::string printable(std::string text) {
  constexpr std::size_t kLongest = 100;
  if (text.size() > kLongest) text.resize(kLongest);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

void read_numerics(FieldReader& fields, const std::string& where, ModelSpec& model,
                   const NumericsDefaults& defaults) {
  model.norm_eps = fields.number_or(defaults.norm_eps_key, defaults.norm_eps, 0, 1);
  model.init_std = fields.number_or("initializer_range", 0.02, 0, 100);
  model.activation = read_activation(fields, where, defaults.activation_key, defaults.activation);
}

void read_rope(FieldReader& fields, const std::string& where, ModelSpec& model,
               const NumericsDefaults& defaults) {
  model.rope_theta = fields.number_or("rope_theta", defaults.rope_theta, 1, kMaxTheta);
  // If a config has both objects, transformers uses rope_scaling. A rope_theta inside an object
  // overrides the one outside.
  bool scaling_known = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json& object = fields.child(key);
    if (object.is_null() || (object.is_object() && object.empty())) continue;
    const std::string inside = where + ": " + key;
    FieldReader inner(object, inside);
    model.rope_theta = inner.number_or("rope_theta", model.rope_theta, 1, kMaxTheta);
    if (!scaling_known) model.rope_scaling = scaling_from(inner, inside);
    scaling_known = true;
    if (auto read = inner.finish(); !read) fields.fail(read.error());
  }
}

}  // namespace copus
