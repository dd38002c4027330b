// Prints messages to stderr. If the reader has gone or the disk is full, the message is lost and
// the program goes on: unlike fmt::print, this never throws.
#pragma once

#include <cstdio>
#include <string_view>

namespace copus {

inline void to_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace copus
