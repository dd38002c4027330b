// What ranks write, passed on line by line to this process's standard error as "rank 3: …".
#pragma once

#include "copus/train/launch/rank_process.h"

namespace copus {

// Moves some of what `stream` (one of the process's own) holds; closes it at its end. Never waits
// for the rank.
void forward_output(RankProcess& process, RankStream& stream);

// After the rank has ended: moves all that it wrote, and closes its streams.
void drain_output(RankProcess& process);

}  // namespace copus
