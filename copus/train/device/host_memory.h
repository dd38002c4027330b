// Host memory that stays: a move is to find its memory ready. A page that is new to a process is
// found, cleared and mapped by the kernel, which takes about as long as its bytes take over a
// loopback link, and several times as long in a virtual machine that gives free memory back.
#pragma once

#include <cstdint>

namespace copus {

// From now on this process keeps the memory that it frees.
void keep_freed_memory();

// Takes `bytes` from the system now, for whoever allocates next, in large pages where there are any
// (which another process reads faster); nothing where less than `ranks` times twice as much is
// available, for all ranks of the node do the same.
void reserve_memory(std::int64_t bytes, int ranks);

}  // namespace copus
