// Reads Slurm's compressed lists: of hosts, such as "gnode[10,20-25],login1", and of tasks per
// node, such as "8(x4),2".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"

namespace copus {

constexpr std::size_t kMaxSlurmNodes = 100'000;

// Returns the host names in the list's order. If a name has several brackets, the last one runs
// fastest. Refuses more than kMaxSlurmNodes names.
Result<std::vector<std::string>> expand_slurm_nodes(std::string_view list);

// Returns how many tasks node number `node` has, counted from 0.
Result<int> slurm_tasks_on_node(std::string_view list, int node);

}  // namespace copus
