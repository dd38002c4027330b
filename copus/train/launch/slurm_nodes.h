// Slurm's compressed lists: of hosts, "gnode[10,20-25],login1", and of tasks per node, "8(x4),2".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"

namespace copus {

constexpr std::size_t kMaxSlurmNodes = 100'000;

// The host names in the list's order; where a name has several brackets, the last runs fastest.
// Refuses more than kMaxSlurmNodes names.
Result<std::vector<std::string>> expand_slurm_nodes(std::string_view list);

// How many tasks the node of that index has.
Result<int> slurm_tasks_on_node(std::string_view list, int node);

}  // namespace copus
