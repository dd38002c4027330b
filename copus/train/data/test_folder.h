// For tests of token files: a temporary folder, and the tokens of a file.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/test_folder.h"
#include "copus/train/data/token_file.h"

namespace copus {

inline std::vector<std::int64_t> all_tokens(const TokenFile& file) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

// Returns the error of opening `path`, or "" if it opens.
inline std::string open_error(const std::string& path) {
  const Result<TokenFile> file = TokenFile::open(path);
  return file ? std::string() : file.error().message;
}

}  // namespace copus
