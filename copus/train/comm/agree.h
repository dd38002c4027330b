// Exchanges short texts between ranks, so that all of them agree on what happens next.
#pragma once

#include <functional>
#include <string>

#include "copus/train/comm/comm.h"
#include "copus/train/options/layout_options.h"

namespace copus {

// Every rank calls this with the trouble that keeps it from continuing, or with "" if it has none.
// Returns on all ranks the trouble of the lowest rank that has one, such as "rank 1: no room", or
// "" if no rank has any. The returned text is cut to 255 bytes.
std::string first_trouble(const Comm& world, const RankDevice& device, const std::string& mine);

// Returns on every rank the text `mine` of rank `root`, of any length. Every rank calls this.
std::string from_rank(int root, const Comm& world, const RankDevice& device,
                      const std::string& mine);
inline std::string from_rank_0(const Comm& world, const RankDevice& device,
                               const std::string& mine) {
  return from_rank(0, world, device, mine);
}

// Writes a result of one rank as a text for the other ranks, and reads it back. An error keeps its
// field.
std::string result_to_text(const Result<std::string>& result);
Result<std::string> result_from_text(const std::string& text);

// The following functions use the ranks' meeting point (the store), so they need no group. A run
// uses each key only once.

// Rank 0 calls tell(), and the other ranks call hear(), which returns the text. hear() throws
// CommError if no text comes in time.
void tell(const Rendezvous& where, const std::string& key, const std::string& text);
std::string hear(const Rendezvous& where, const std::string& key);

// Runs `work` on rank 0 alone. The other ranks wait until it is done and get its error too, so that
// they do not later wait for a rank that could not continue.
Result<void> on_rank_0(const Rendezvous& where, const std::string& key,
                       const std::function<Result<void>()>& work);

}  // namespace copus
