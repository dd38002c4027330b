// FrameworkProfile: what is assumed of a training framework, by name. The catalog has one for each
// that was calibrated (catalog/frameworks.json); docs/accuracy.md says from which rows.
//
// A profile is a set of CostOptions, all with a physical meaning, and nothing about any one model,
// cluster or row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/cost/options.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

struct FrameworkProfile {
  std::string name;
  CostOptions options;  // its precision is nobody's: the job states it
};

std::vector<std::string> framework_names();
// "megatron", …; the error lists the nearest names.
Result<FrameworkProfile> framework_profile(std::string_view name);
// The profile that a job is priced with where none is named.
const FrameworkProfile& default_framework();

}  // namespace copus
