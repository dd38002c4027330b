// Short texts between all ranks.
#pragma once

#include <string>

#include "copus/train/comm/comm.h"
#include "copus/train/options/layout_options.h"

namespace copus {

// Every rank says something, or nothing (""): the first of all in alphabetical order, the same on
// every rank; "" where none has spoken. At most 255 bytes of each are heard.
std::string first_said(const Comm& world, const RankDevice& device, const std::string& mine);

// Rank 0's text, of any length, on every rank.
std::string from_rank_0(const Comm& world, const RankDevice& device, const std::string& mine);

// The same before there are groups, through the ranks' meeting point: what rank 0 says once under
// this name, and what the others hear. hear() throws CommError where nothing comes.
void tell(const Rendezvous& where, const std::string& key, const std::string& text);
std::string hear(const Rendezvous& where, const std::string& key);

}  // namespace copus
