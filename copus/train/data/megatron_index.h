// Megatron-LM's .idx: where the sequences and documents begin in the .bin beside it.
//
//   9 bytes  "MMIDIDX\0\0"
//   u64      version, 1
//   u8       the type of the tokens
//   u64      number of sequences
//   u64      number of document indices: one per document, and one more
//   int32    length of each sequence, in tokens
//   int64    where each sequence begins in the .bin, in bytes
//   int64    first sequence of each document; the last entry is the number of sequences
//   int8     mode of each sequence; may be absent
//
// All numbers are little-endian.
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

// The types of tokens, with Megatron-LM's numbers. Its 6 and 7 are floating-point types, which
// tokens cannot have.
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

// Checks that the index is consistent in itself and with the size of the .bin. Sequences must
// follow each other in the .bin without gaps, as Megatron-LM writes them. Then the .bin alone is
// the stream of tokens.
Result<IndexSummary> check_index(std::span<const std::byte> index, const std::string& index_name,
                                 std::int64_t bin_bytes, const std::string& bin_name);

// Returns "x" for "x.bin" and "x.idx", and any other path as it is.
std::string token_file_prefix(const std::string& path);

}  // namespace copus
