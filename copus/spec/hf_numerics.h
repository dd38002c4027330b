// The fields of a Hugging Face config.json that planning does not price and training must have
// exactly: epsilon, initial spread, activation, rotary frequencies.
#pragma once

#include <cstdint>
#include <string>

#include "copus/base/json.h"
#include "copus/spec/model_spec.h"

namespace copus {

// Of a field that counts positions. As in ModelSpec::validate().
constexpr std::int64_t kMaxPositions = 1'000'000'000;

// What a family's configuration class fills in, and the keys it reads.
struct NumericsDefaults {
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  const char* activation_key = "hidden_act";
  Activation activation = Activation::kSilu;
  double rope_theta = 10000;
};

// Sets norm_eps, init_std and activation. Errors go to `fields`; `where` begins their text.
void read_numerics(FieldReader& fields, const std::string& where, ModelSpec& model,
                   const NumericsDefaults& defaults);

// Sets rope_theta and rope_scaling from rope_theta and rope_scaling, or from the newer
// rope_parameters that holds both.
void read_rope(FieldReader& fields, const std::string& where, ModelSpec& model,
               const NumericsDefaults& defaults);

// Names from a config reach terminals and tables: clipped, and no control characters.
std::string printable(std::string text);

}  // namespace copus
