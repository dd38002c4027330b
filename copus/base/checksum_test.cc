#include "copus/base/checksum.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The checksum of the empty input shows the variant and the seed: any other gives another value.
TEST(Checksum, IsXxh3WithoutASeed) { EXPECT_EQ(checksum_text(xxh3_of("")), "2d06800538d394c2"); }

TEST(Checksum, IsTheSameInPieces) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>('a' + i % 23);
  for (const std::size_t piece : {1u, 7u, 256u, 1000u, 4999u, 5000u}) {
    Xxh3 sum;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      sum.add(bytes_of(std::string_view(text).substr(at, piece)));
    }
    EXPECT_EQ(sum.digest(), xxh3_of(text)) << piece;
  }
}

TEST(Checksum, TextIsReadBack) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    const Result<std::uint64_t> read = parse_checksum(checksum_text(value), "xxh3");
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(*read, value);
  }
  for (const char* text : {"", "1", "0123456789abcdef0", "0123456789abcdeg", "0123456789ABCDEF",
                           "-123456789abcdef", "+123456789abcdef", " 123456789abcdef"}) {
    EXPECT_FALSE(parse_checksum(text, "xxh3").has_value()) << text;
  }
}

}  // namespace
}  // namespace copus
