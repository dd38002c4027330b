// Test helpers that parse a Hugging Face config and return the model or the error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "copus/base/json.h"
#include "copus/spec/hf_config.h"

namespace copus {

inline ModelSpec parsed(const Json& config) {
  const Result<ModelSpec> model = parse_hf_config(config.dump(), "config.json");
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : ModelSpec();
}

inline std::string failure(const Json& config) {
  const Result<ModelSpec> model = parse_hf_config(config.dump(), "config.json");
  return model ? "parsed" : model.error().message;
}

}  // namespace copus
