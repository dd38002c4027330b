// copus train's options of checkpoints.
#pragma once

#include <string>

#include "copus/args/option.h"
#include "copus/train/options/run_options.h"

namespace copus {

// The most steps or samples that an option takes.
constexpr std::int64_t kMany = 1'000'000'000'000;

// 1 or more, or "off": 0.
Values<std::int64_t> steps_or_off();

struct CheckpointArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<std::int64_t> every{
      this, "--checkpoint-every", steps_or_off(), "save every so many steps, too; off: never",
      Otherwise{"at the end, and where SIGTERM, SIGUSR1 or SIGINT ends the run"}};
  Option<std::int64_t> keep{this, "--keep", integer(1, kMany),
                            "how many of the last checkpoints stay", Retention().keep};
  Option<std::int64_t> keep_every{this, "--keep-every", integer(1, kMany),
                                  "checkpoints of steps that are a multiple of this stay for ever",
                                  Otherwise{"none"}};
  Option<bool> resume{this,
                      "--resume",
                      flag(),
                      "go on from the newest checkpoint in --run-dir; its config.toml has the "
                      "options that are not given",
                      false,
                      InFile::kNo};
  Option<bool> other_data{
      this,
      "--other-data",
      flag(),
      "with --resume: --data, --seq-len, --seed or --held-out are meant to be others than the run "
      "was on",
      false,
      InFile::kRead};
};

// All but what the user gave of the run's other options.
Result<CheckpointOptions> resolve_checkpoints(const CheckpointArgs& args);

}  // namespace copus
