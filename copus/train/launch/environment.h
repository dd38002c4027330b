// Reads this process's place among the ranks from the variables of torchrun, Open MPI or Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

// The program that started the ranks.
enum class Launcher {
  kNone,   // no launcher: this process is the whole run
  kCopus,  // copus train, which also restarts ranks that fail
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
  bool store_is_served = false;  // the launcher serves the store, so rank 0 must not
  std::string node_store;        // the name of copus train's store, used instead of the address
  Launcher launcher = Launcher::kNone;
};

// Returns the value of a variable; empty if it is not set. environment_variable() reads the
// process's own environment.
using Getenv = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> environment_variable(const std::string& name);

// Returns nothing if no launcher's variables are set. If they contradict each other or some are
// missing, the error names the variable and its value.
Result<std::optional<RankEnvironment>> rank_environment(const Getenv& get);

}  // namespace copus
