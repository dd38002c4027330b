// Words for whoever watches. A reader that has gone or a full disk takes the words and nothing
// else: unlike fmt::print, which throws, this always returns.
#pragma once

#include <cstdio>
#include <string_view>

namespace copus {

inline void to_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace copus
