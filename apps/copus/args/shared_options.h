// Options that several commands have. Name, values and help text are defined here once; each
// command gives limits and defaults.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "copus/args/option.h"

namespace copus {

struct ModelOption : Option<std::string> {
  ModelOption(OptionGroup* group, Default<std::string> otherwise)
      : Option(group, "--model", text("NAME|FILE"), "a catalog name, or a Hugging Face config.json",
               std::move(otherwise)) {}
};

struct ClusterOption : Option<std::string> {
  // `what_for`: the cluster's purpose, if the command does not plan for it; ends with a colon.
  ClusterOption(OptionGroup* group, const std::string& what_for, Default<std::string> otherwise)
      : Option(group, "--cluster", text("NODESxGPUSxGPU|NAME|FILE"),
               what_for + "4x8xH100-80GB-SXM, a catalog name, or a cluster file",
               std::move(otherwise)) {}
};

struct PlanOption : Option<std::string> {
  // `form`: the placeholder in --help; `more`: other values that the command takes, and what it
  // does with parts of the plan that are left out.
  PlanOption(OptionGroup* group, std::string form, const std::string& more,
             Default<std::string> otherwise)
      : Option(group, "--plan", text(std::move(form)),
               "a plan: tp=2,pp=4,..., a layout as it is printed (dp1.tp2.pp4.mb1), or a "
               "plan.json; " +
                   more,
               std::move(otherwise)) {}
  // For a command that has a cluster.
  explicit PlanOption(OptionGroup* group)
      : PlanOption(group, "PLAN|FILE",
                   "if parts are left out, dp is GPUs / (tp x cp x pp), and others have their "
                   "defaults",
                   Required()) {}
};

struct FixOption : Option<std::string> {
  explicit FixOption(OptionGroup* group)
      : Option(group, "--fix", text("PLAN|FILE"),
               "pins parts of the plan: zero=0,cp=1 or z0.cp1 pins what it names and leaves the "
               "rest free; a layout as it is printed (with dp, tp, pp and mb) pins every part: if "
               "it has no sp, sp is off") {}
};

struct FrameworkOption : Option<std::string> {
  // `what_for`: what is predicted, if the command does not predict the job; ends with a colon.
  FrameworkOption(OptionGroup* group, const std::string& what_for, Default<std::string> otherwise)
      : Option(group, "--framework", text("NAME"),
               what_for +
                   "the training framework, whose profile sets the assumptions: megatron, "
                   "torchtitan, ...",
               std::move(otherwise)) {}
};

struct AssumeOption : Option<std::string> {
  explicit AssumeOption(OptionGroup* group)
      : Option(group, "--assume", text("NAME=VALUE,..."),
               "assumptions about the engine; they override the framework's profile (see "
               "docs/cost-model.md)") {}
};

struct GlobalBatchOption : Option<std::int64_t> {
  GlobalBatchOption(OptionGroup* group, std::int64_t most, std::int64_t otherwise,
                    const char* help = "sequences per step, over all replicas")
      : Option(group, "--global-batch", integer(1, most), help, otherwise) {}
};

struct SeqLenOption : Option<std::int64_t> {
  // `usual`: the upper limit of the default.
  SeqLenOption(OptionGroup* group, std::int64_t most, std::int64_t usual)
      : Option(group, "--seq-len", integer(1, most), "tokens per sequence",
               Otherwise{fmt::format("the model's positions, at most {}", usual)}) {}
};

// `T`: the type of the precisions that the command offers. The planner prices more precisions than
// the engine can train in.
template <typename T>
struct PrecisionOption : Option<T> {
  template <std::size_t kCount>
  PrecisionOption(OptionGroup* group, const std::array<T, kCount>& choices, Default<T> otherwise,
                  const std::string& detail = "")
      : Option<T>(group, "--precision", one_of(choices),
                  "precision of the matrix products" + detail, std::move(otherwise)) {}
};

struct JsonOption : Option<bool> {
  explicit JsonOption(OptionGroup* group, const char* help = "print JSON")
      : Option(group, "--json", copus::flag(), help, false, InFile::kNo) {}
};

}  // namespace copus
