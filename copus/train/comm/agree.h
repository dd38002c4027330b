// Short texts between all ranks.
#pragma once

#include <functional>
#include <string>

#include "copus/train/comm/comm.h"
#include "copus/train/options/layout_options.h"

namespace copus {

// Every rank says what keeps it from going on, or nothing (""). On all of them: "rank 1: no room",
// of the lowest rank that has spoken; "" where none has. At most 255 bytes are heard.
std::string first_trouble(const Comm& world, const RankDevice& device, const std::string& mine);

// The text of one rank, of any length, on every rank.
std::string from_rank(int root, const Comm& world, const RankDevice& device,
                      const std::string& mine);
inline std::string from_rank_0(const Comm& world, const RankDevice& device,
                               const std::string& mine) {
  return from_rank(0, world, device, mine);
}

// The following go through the ranks' meeting point: they need no group. Each name is used once.

// What rank 0 says, and what the others hear. hear() throws CommError where nothing comes.
void tell(const Rendezvous& where, const std::string& key, const std::string& text);
std::string hear(const Rendezvous& where, const std::string& key);

// Does what is rank 0's work alone. The others wait until it is done, and get its error: they would
// wait in vain for a rank that cannot go on.
Result<void> on_rank_0(const Rendezvous& where, const std::string& key,
                       const std::function<Result<void>()>& work);

}  // namespace copus
