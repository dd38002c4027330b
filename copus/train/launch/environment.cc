#include "copus/train/launch/environment.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "copus/base/text.h"
#include "copus/train/launch/slurm_nodes.h"

namespace copus {
namespace {

constexpr int kMaxRanks = 1'000'000;
constexpr int kDefaultPort = 29500;  // torch.distributed's

// The names of one launcher's variables. `rank` and `size` refer to the whole run.
struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

Result<std::optional<int>> number(const Getenv& get, const std::string& name, int low, int high) {
  const std::optional<std::string> text = get(name);
  if (!text) return std::optional<int>();
  COPUS_TRY(const std::int64_t n, parse_integer(*text, name, low, high));
  return std::optional<int>(static_cast<int>(n));
}

Result<int> required(const Getenv& get, const std::string& name, const std::string& beside, int low,
                     int high) {
  COPUS_TRY(const std::optional<int> n, number(get, name, low, high));
  if (n) return *n;
  return field_error(name, "not set, but {} is {}; want both", beside, get(beside).value_or(""));
}

Result<void> below(const char* name, int n, const char* limit_name, int limit) {
  if (n < limit) return {};
  return field_error(name, "got {}; want less than {} ({})", n, limit_name, limit);
}

// Reads rank and size, in the run and on this node. If the launcher does not set the local
// variables, all ranks are on one node.
Result<RankEnvironment> read_ranks(const Getenv& get, const Names& names) {
  RankEnvironment env;
  COPUS_TRY(env.rank, required(get, names.rank, names.size, 0, kMaxRanks - 1));
  COPUS_TRY(env.world_size, required(get, names.size, names.rank, 1, kMaxRanks));
  COPUS_TRY_VOID(below(names.rank, env.rank, names.size, env.world_size));
  COPUS_TRY(const auto local_size, number(get, names.local_size, 1, kMaxRanks));
  env.local_world_size = local_size.value_or(env.world_size);
  if (env.local_world_size > env.world_size) {
    return field_error(names.local_size, "got {}; want at most {} ({})", env.local_world_size,
                       names.size, env.world_size);
  }
  COPUS_TRY(const auto local_rank, number(get, names.local_rank, 0, kMaxRanks - 1));
  env.local_rank = local_rank.value_or(env.rank % env.local_world_size);
  COPUS_TRY_VOID(below(names.local_rank, env.local_rank, local_size ? names.local_size : names.size,
                       env.local_world_size));
  return env;
}

std::optional<std::string> master_address(const Getenv& get) {
  std::optional<std::string> address = get("MASTER_ADDR");
  if (address && address->empty()) address.reset();
  return address;
}

Result<std::optional<int>> master_port(const Getenv& get) {
  return number(get, "MASTER_PORT", 1, 65535);
}

Result<RankEnvironment> from_torchrun(const Getenv& get) {
  COPUS_TRY(RankEnvironment env,
            read_ranks(get, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}));
  const bool ours = get("COPUS_LAUNCHED") == "1";
  env.launcher = ours ? Launcher::kCopus : Launcher::kTorchrun;
  env.store_is_served = get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (ours) env.node_store = get("COPUS_NODE_STORE").value_or("");
  const std::optional<std::string> address = master_address(get);
  COPUS_TRY(const auto port, master_port(get));
  if (env.world_size > 1 && env.node_store.empty() && (!address || !port)) {
    return field_error(address ? "MASTER_PORT" : "MASTER_ADDR",
                       "not set, but WORLD_SIZE is {}; want the host and port where the ranks meet",
                       env.world_size);
  }
  env.master_address = address.value_or(env.master_address);
  env.master_port = port.value_or(0);
  return env;
}

Result<RankEnvironment> from_openmpi(const Getenv& get) {
  COPUS_TRY(RankEnvironment env,
            read_ranks(get, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}));
  env.launcher = Launcher::kOpenMpi;
  const std::optional<std::string> address = master_address(get);
  if (!address && env.local_world_size < env.world_size) {
    return field_error("MASTER_ADDR",
                       "not set, but {} of {} ranks are on other nodes; want the host of rank 0 "
                       "(mpirun -x MASTER_ADDR=HOST)",
                       env.world_size - env.local_world_size, env.world_size);
  }
  env.master_address = address.value_or(env.master_address);
  COPUS_TRY(const auto port, master_port(get));
  env.master_port = port.value_or(env.world_size > 1 ? kDefaultPort : 0);
  return env;
}

// A variable that is set: its name and its value.
struct Found {
  std::string name;
  std::string value;
};
std::optional<Found> first_set(const Getenv& get, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = get(name)) return Found{name, *value};
  }
  return std::nullopt;
}

// Returns the number of tasks of this Slurm step; empty outside a step of several tasks. A batch
// script is one process, but has SLURM_PROCID=0 and the SLURM_NTASKS of the whole job. So in a
// batch script only the step's own count is used.
std::optional<Found> slurm_step_size(const Getenv& get) {
  if (!get("SLURM_PROCID")) return std::nullopt;
  std::optional<Found> size = first_set(get, {"SLURM_STEP_NUM_TASKS"});
  if (!size && get("ENVIRONMENT") != "BATCH") size = first_set(get, {"SLURM_NTASKS"});
  return size && size->value != "1" ? size : std::nullopt;
}

Result<int> slurm_local_size(const Getenv& get, int world_size) {
  const auto tasks = first_set(get, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!tasks) return world_size;
  COPUS_TRY(const auto node, number(get, "SLURM_NODEID", 0, kMaxRanks));
  const Result<int> local = slurm_tasks_on_node(tasks->value, node.value_or(0));
  if (!local) return error_in(tasks->name, local.error());
  return std::min(*local, world_size);  // a step may have fewer tasks than its job
}

Result<std::string> slurm_master(const Getenv& get) {
  const auto nodes =
      first_set(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!nodes) {
    return field_error("SLURM_STEP_NODELIST",
                       "not set, nor SLURM_JOB_NODELIST; want one of them, or MASTER_ADDR");
  }
  const Result<std::vector<std::string>> hosts = expand_slurm_nodes(nodes->value);
  if (!hosts) return error_in(nodes->name, hosts.error());
  return hosts->front();
}

Result<RankEnvironment> from_slurm(const Getenv& get, const Found& step_size) {
  // Slurm has no variable for the number of ranks on this node. It is computed, and passed to
  // read_ranks() under the name SLURM_TASKS_PER_NODE.
  COPUS_TRY(const std::int64_t world, parse_integer(step_size.value, step_size.name, 1, kMaxRanks));
  COPUS_TRY(const int local_size, slurm_local_size(get, static_cast<int>(world)));
  const Getenv with_local_size = [&](const std::string& name) -> std::optional<std::string> {
    return name == "SLURM_TASKS_PER_NODE" ? fmt::format("{}", local_size) : get(name);
  };
  COPUS_TRY(RankEnvironment env,
            read_ranks(with_local_size, {"SLURM_PROCID", step_size.name.c_str(), "SLURM_LOCALID",
                                         "SLURM_TASKS_PER_NODE"}));
  env.launcher = Launcher::kSlurm;
  if (const auto address = master_address(get)) {
    env.master_address = *address;
  } else if (env.local_world_size < env.world_size ||
             first_set(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})) {
    COPUS_TRY(env.master_address, slurm_master(get));
  }
  COPUS_TRY(const auto port, master_port(get));
  env.master_port = port.value_or(kDefaultPort);
  if (const auto job = first_set(get, {"SLURM_JOB_ID", "SLURM_JOBID"}); job && !port) {
    // The port depends on the job's id, so that jobs that share a node get different ports.
    COPUS_TRY(const std::int64_t id, parse_integer(job->value, job->name, 0, 4'294'967'295));
    env.master_port = 20000 + static_cast<int>(id % 20000);
  }
  return env;
}

}  // namespace

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::kNone:
      return "none";
    case Launcher::kCopus:
      return "copus";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kSlurm:
      return "slurm";
    case Launcher::kOpenMpi:
      return "openmpi";
  }
  return "?";
}

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

Result<std::optional<RankEnvironment>> rank_environment(const Getenv& get) {
  const auto found = [](Result<RankEnvironment> env) -> Result<std::optional<RankEnvironment>> {
    if (!env) return env.error();
    return std::optional<RankEnvironment>(*env);
  };
  if (get("RANK")) return found(from_torchrun(get));
  if (get("OMPI_COMM_WORLD_RANK")) return found(from_openmpi(get));
  if (const auto size = slurm_step_size(get)) return found(from_slurm(get, *size));
  return std::optional<RankEnvironment>();
}

}  // namespace copus
