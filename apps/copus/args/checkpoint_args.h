// copus train's options for checkpoints.
#pragma once

#include <string>

#include "copus/args/option.h"
#include "copus/train/options/run_options.h"

namespace copus {

// The largest number of steps or samples that an option accepts.
constexpr std::int64_t kMany = 1'000'000'000'000;

// The values of an option that takes a number of steps, 1 or more, or "off", which is 0.
Values<std::int64_t> steps_or_off();

struct CheckpointArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<std::int64_t> every{
      this, "--checkpoint-every", steps_or_off(), "save every N steps as well; off: never save",
      Otherwise{"at the end of the run, also when SIGTERM, SIGINT, SIGUSR1 or SIGHUP ends it"}};
  Option<std::int64_t> keep{this, "--keep", integer(1, kMany),
                            "how many of the newest checkpoints are kept", Retention().keep};
  Option<std::int64_t> keep_every{this, "--keep-every", integer(1, kMany),
                                  "never remove a checkpoint whose step is a multiple of this",
                                  Otherwise{"none"}};
  Option<bool> resume{this,
                      "--resume",
                      flag(),
                      "continue from the newest checkpoint in --run-dir; options that are not "
                      "given come from its config.toml",
                      false,
                      InFile::kNo};
  Option<bool> other_data{
      this,
      "--other-data",
      flag(),
      "with --resume: allow --data, --seq-len, --seed or --held-out to differ from the run's",
      false,
      InFile::kRead};
};

// Converts `args`. Leaves the fields that depend on other options (plan_given, batch_given,
// lr_given and wait) to the caller.
Result<CheckpointOptions> resolve_checkpoints(const CheckpointArgs& args);

}  // namespace copus
