// Keeps host memory in the process, so that a move finds its memory ready. The kernel must find,
// clear and map each page that is new to a process. This takes about as long as sending its bytes
// over a loopback link, and several times as long in a virtual machine that gives free memory back.
#pragma once

#include <cstdint>

namespace copus {

// From now on this process keeps the memory that it frees.
void keep_freed_memory();

// Takes `bytes` from the system now, for the next allocations of this process. Asks for large
// pages, which another process can read faster. Takes nothing if less than 2 * ranks * bytes is
// available, because all `ranks` ranks of the node do the same.
void reserve_memory(std::int64_t bytes, int ranks);

}  // namespace copus
