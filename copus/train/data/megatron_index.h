// Megatron-LM's .idx: which tokens of the .bin beside it are which sequence and which document.
//
//   9 bytes  "MMIDIDX\0\0"
//   u64      version, 1
//   u8       the type of the tokens
//   u64      sequences
//   u64      document indices: one per document, and one more
//   int32    length of each sequence, in tokens
//   int64    where each sequence begins in the .bin, in bytes
//   int64    first sequence of each document; the last entry is the number of sequences
//   int8     mode of each sequence; may be absent
//
// All little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kIndexVersion = 1;
constexpr std::size_t kIndexHeaderBytes = 34;

// Megatron-LM's numbers. 6 and 7 are floating point, which tokens are not.
enum class TokenType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};

std::string_view token_type_name(TokenType type);
std::int64_t token_bytes(TokenType type);

struct IndexSummary {
  TokenType type = TokenType::kUint8;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
};

// Checks the whole index against itself and against the size of the .bin. Sequences must follow
// each other in the .bin without gaps, as Megatron-LM writes them: then the .bin is the stream of
// tokens.
Result<IndexSummary> check_index(std::span<const std::byte> index, const std::string& index_name,
                                 std::int64_t bin_bytes, const std::string& bin_name);

// "x.bin" and "x.idx" -> "x"; anything else as it is.
std::string token_file_prefix(const std::string& path);

}  // namespace copus
