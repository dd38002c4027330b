// Writes a model and a plan as Megatron-LM's launch flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/cost/options.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// Returns one entry per flag, with its value: "--tensor-model-parallel-size 8". A model or plan
// that Megatron-LM's flags cannot express is an error.
Result<std::vector<std::string>> megatron_args(const ModelSpec& model, const ParallelPlan& plan,
                                               std::int64_t seq_len, std::int64_t global_batch,
                                               const CostOptions& options);
// Returns a plan's split in Megatron Core's layout language: E is the embedding, t a decoder layer,
// L the loss; | separates stages.
std::string pipeline_layout(const ParallelPlan& plan);
// Returns how Megatron Core exchanges keys and values under context parallelism, if that has to be
// stated: its default, a ring, cannot do windowed attention. Empty: the default.
std::string cp_comm_type(const ModelSpec& model, const ParallelPlan& plan, std::int64_t seq_len);

// Splits the entries into the words of a program's arguments: a flag and its value are two words.
std::vector<std::string> argument_words(const std::vector<std::string>& args);
// Returns one entry for a shell, with its value quoted if a shell needs that.
std::string shell_line(const std::string& arg);

}  // namespace copus
