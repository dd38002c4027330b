// Passes the output of ranks on, line by line, to this process's standard error as "rank 3: …".
#pragma once

#include "copus/train/launch/rank_process.h"

namespace copus {

// Reads once from `stream`, which is one of the two of `process`, and passes the lines on. Closes
// the stream at its end. Never waits for the rank.
void forward_output(RankProcess& process, RankStream& stream);

// Passes on all that the rank wrote, and closes its streams. Called after the rank has ended.
void drain_output(RankProcess& process);

}  // namespace copus
