// Reads the fields of a Hugging Face config.json that do not affect a plan's cost but that training
// needs exactly: norm epsilon, spread of initial weights, activation, rotary frequencies.
#pragma once

#include <cstdint>
#include <string>

#include "copus/base/json.h"
#include "copus/spec/model_spec.h"

namespace copus {

// The limit of a field that counts positions, as in ModelSpec::validate().
constexpr std::int64_t kMaxPositions = 1'000'000'000;

// The defaults of a family's configuration class, and the keys that the class reads.
struct NumericsDefaults {
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  const char* activation_key = "hidden_act";
  Activation activation = Activation::kSilu;
  double rope_theta = 10000;
};

// Sets norm_eps, init_std and activation. Errors go to `fields`, and their text begins with
// `where`.
void read_numerics(FieldReader& fields, const std::string& where, ModelSpec& model,
                   const NumericsDefaults& defaults);

// Sets rope_theta and rope_scaling from the keys of the same names, or from the newer key
// rope_parameters, which holds both.
void read_rope(FieldReader& fields, const std::string& where, ModelSpec& model,
               const NumericsDefaults& defaults);

// Returns the text clipped to 100 characters, with '?' for characters that are not printable ASCII.
// For names from a config, which reach terminals and tables.
std::string printable(std::string text);

}  // namespace copus
