// A plan as Megatron-LM's launch flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/cost/options.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// One entry per flag with its value ("--tensor-model-parallel-size 8"). What Megatron-LM cannot
// express is an error.
Result<std::vector<std::string>> megatron_args(const ModelSpec& model, const ParallelPlan& plan,
                                               std::int64_t seq_len, std::int64_t global_batch,
                                               const CostOptions& options);
// The same as a program takes them: a flag and its value are two words.
std::vector<std::string> argument_words(const std::vector<std::string>& args);
// One of them as a shell takes it, its value quoted where that is needed.
std::string shell_line(const std::string& arg);

}  // namespace copus
