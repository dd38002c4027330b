// MappedFile: the bytes of a regular file, read-only. The file must not shrink while it is mapped:
// reading what is gone ends the process (SIGBUS).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "copus/base/result.h"

namespace copus {

class MappedFile {
 public:
  // The error names the file: missing, unreadable, not a regular file, or empty.
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

// What errno says, as text.
std::string errno_text();

}  // namespace copus
