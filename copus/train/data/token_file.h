// TokenFile: one file of training tokens, memory-mapped: UTF-8 text taken as bytes, or
// Megatron-LM's .bin with its .idx.
//
// Immutable after open(): any number of threads may read.
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
  // "x.bin", "x.idx", or "x" when both of these exist: Megatron-LM's pair. Anything else: its
  // bytes, one token each. The error names the file, the field and the offset.
  static Result<TokenFile> open(const std::string& path);
  // Tokens that are in memory already, one byte each (the builtin corpus).
  static TokenFile from_bytes(std::string bytes, std::string name);

  const std::string& name() const;
  std::int64_t size() const;       // tokens
  std::int64_t documents() const;  // 1 for text
  std::string_view dtype() const;  // "uint8" for text
  // Copies tokens [begin, begin + out.size()). REQUIRES: inside the file.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;

 private:
  struct Mapping;
  explicit TokenFile(std::shared_ptr<const Mapping> mapping);
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace copus
