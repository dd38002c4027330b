// Who this process is among the ranks: torchrun's variables, or Slurm's or Open MPI's mapped to
// them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

// Who started the ranks.
enum class Launcher {
  kNone,   // nobody: this process is the run
  kCopus,  // copus train, which also starts them again
  kTorchrun,
  kSlurm,
  kOpenMpi,
};
std::string_view to_string(Launcher launcher);

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;           // 0: one process, no rendezvous needed
  bool store_is_served = false;  // a launcher serves the store already; rank 0 must not
  std::string node_store;        // its name, where copus train serves it; else the ranks meet above
  Launcher launcher = Launcher::kNone;
};

// Reads one variable; empty when unset. The process's own environment is `environment_variable`.
using Getenv = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> environment_variable(const std::string& name);

// Nothing when no launcher's variables are set. An error when they contradict each other or are
// incomplete; it names the variable and its value.
Result<std::optional<RankEnvironment>> rank_environment(const Getenv& get);

}  // namespace copus
