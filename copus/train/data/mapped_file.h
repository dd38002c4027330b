// MappedFile: the bytes of a regular file, mapped read-only. The file must not shrink while it is
// mapped: a read behind its new end ends the process (SIGBUS).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "copus/base/result.h"

namespace copus {

class MappedFile {
 public:
  // Fails if the file is missing, unreadable, empty, or not a regular file. The error names it.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// Returns the text for the current errno.
std::string errno_text();

}  // namespace copus
