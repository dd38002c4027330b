// XXH3, a checksum of 64 bits. It detects damaged bytes, but not deliberate changes. xxh3_of()
// takes all bytes at once; Xxh3 takes them piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

std::uint64_t xxh3_of(std::string_view bytes);

class Xxh3 {
 public:
  Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  ~Xxh3();

  void add(std::span<const std::byte> bytes);
  std::uint64_t digest() const;  // of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A checksum as files contain it: 16 hexadecimal digits.
std::string checksum_text(std::uint64_t checksum);
Result<std::uint64_t> parse_checksum(std::string_view text, std::string_view field);

}  // namespace copus
