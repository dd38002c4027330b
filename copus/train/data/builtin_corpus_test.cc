#include "copus/train/data/builtin_corpus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace copus {
namespace {

const std::string& corpus() {
  static const std::string text = builtin_corpus(std::size_t{1} << 20U);
  return text;
}

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

// Returns the bits per byte, given the `order` bytes before it, from counts in the text itself.
double conditional_entropy(std::string_view text, std::size_t order) {
  std::unordered_map<std::uint64_t, std::uint32_t> contexts;
  std::unordered_map<std::uint64_t, std::uint32_t> full;
  for (std::size_t i = order; i < text.size(); ++i) {
    std::uint64_t context = 0;
    for (std::size_t j = i - order; j < i; ++j) {
      context = (context << 8U) | static_cast<unsigned char>(text[j]);
    }
    ++contexts[context];
    ++full[(context << 8U) | static_cast<unsigned char>(text[i])];
  }
  double bits = 0;
  for (const auto& [key, count] : full) {
    bits -= count * std::log2(static_cast<double>(count) / contexts[key >> 8U]);
  }
  return bits / static_cast<double>(text.size() - order);
}

// Every recorded loss depends on the text, so a new hash here means a new benchmark.
TEST(BuiltinCorpus, TextIsTheOneThatLossesWereRecordedWith) {
  EXPECT_EQ(hash_of(corpus()), 16734903691248543365U);
  EXPECT_EQ(hash_of(builtin_corpus(kBuiltinCorpusBytes)), 6857566325850991485U);
}

TEST(BuiltinCorpus, AnyLengthIsAPrefixOfEveryLongerOne) {
  for (const std::size_t bytes : {0U, 1U, 5U, 1000U, 100000U}) {
    EXPECT_EQ(builtin_corpus(bytes), corpus().substr(0, bytes));
  }
}

TEST(BuiltinCorpus, EntropyFallsWithContext) {
  const double limits[] = {4.6, 3.4, 2.7, 2.2, 1.8, 1.5};
  double before = 8;
  for (std::size_t order = 0; order < 6; ++order) {
    const double bits = conditional_entropy(corpus(), order);
    EXPECT_LT(bits, limits[order]) << order;
    EXPECT_LT(bits, before - 0.2) << order;
    before = bits;
  }
  EXPECT_GT(conditional_entropy(corpus(), 0), 4.0);
  EXPECT_GT(before, 0.8);  // even five bytes of context do not determine the next byte
}

TEST(BuiltinCorpus, TextDoesNotRepeatItself) {
  std::unordered_set<std::string_view> blocks;
  constexpr std::size_t kBlock = 64;
  const std::string_view text = corpus();
  for (std::size_t i = 0; i + kBlock <= text.size(); i += kBlock) {
    blocks.insert(text.substr(i, kBlock));
  }
  EXPECT_GT(blocks.size(), text.size() / kBlock * 99 / 100);
}

TEST(BuiltinCorpus, BracketsCloseInEveryLine) {
  std::string open;
  for (const char c : std::string_view(corpus()).substr(0, corpus().rfind('\n'))) {
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), c == ')' ? '(' : c == ']' ? '[' : '{');
      open.pop_back();
    }
    if (c == '\n') {
      ASSERT_TRUE(open.empty());
    }
  }
}

TEST(BuiltinCorpus, SumsAreRight) {
  const std::string& text = corpus();
  int sums = 0;
  for (std::size_t at = text.find(" = "); at != std::string::npos; at = text.find(" = ", at + 1)) {
    const std::size_t begin = text.find_last_of(".\n", at) + 1;
    int a = 0;
    int b = 0;
    int result = 0;
    char sign = 0;
    if (std::sscanf(text.c_str() + begin, "%d %c %d = %d.", &a, &sign, &b, &result) != 4) continue;
    EXPECT_EQ(result, sign == '+' ? a + b : a * b);
    ++sums;
  }
  EXPECT_GT(sums, 300);
}

}  // namespace
}  // namespace copus
