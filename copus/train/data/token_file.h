// TokenFile: one memory-mapped file of training tokens. It is either any file whose bytes are the
// tokens (such as UTF-8 text), or Megatron-LM's .bin with its .idx.
//
// Immutable after open(), so any number of threads may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

class TokenFile {
 public:
  // Opens Megatron-LM's pair for "x.bin" or "x.idx". Does so for "x" too if both halves exist, or
  // if one half but no file "x" exists. Any other file is read as bytes, one token each. The error
  // names the file, the field and the offset.
  static Result<TokenFile> open(const std::string& path);
  // Makes a TokenFile of bytes in memory, one token each (for the builtin corpus).
  static TokenFile from_bytes(std::string bytes, std::string name);

  const std::string& name() const;
  std::int64_t size() const;       // tokens
  std::int64_t documents() const;  // 1 for text
  std::string_view dtype() const;  // "uint8" for text
  // Copies tokens [begin, begin + out.size()). REQUIRES: they are inside the file.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;

 private:
  struct Mapping;
  explicit TokenFile(std::shared_ptr<const Mapping> mapping);
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace copus
