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

}  // namespace copus
