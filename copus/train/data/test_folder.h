// For tests: a folder that is gone afterwards, and files as strings.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "copus/train/data/token_file.h"

namespace copus {

class TestFolder {
 public:
  TestFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("copus_data_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      out.push_back(entry.path().filename().string());
    }
    return out;
  }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::int64_t> all_tokens(const TokenFile& file) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

// The error of opening `path`, or "" when it opens.
inline std::string open_error(const std::string& path) {
  const Result<TokenFile> file = TokenFile::open(path);
  return file ? std::string() : file.error().message;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace copus
