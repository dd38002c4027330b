#include "copus/train/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <tuple>

#include "copus/train/data/test_folder.h"

namespace copus {
namespace {

using std::string_literals::operator""s;

// The index of three sequences of 3, 1 and 2 tokens in two documents, as Megatron-LM writes it.
const std::string kIndex =
    "MMIDIDX\0\0"s
    "\x01\0\0\0\0\0\0\0"s                  // version
    "\x08"s                                // uint16
    "\x03\0\0\0\0\0\0\0"s                  // sequences
    "\x03\0\0\0\0\0\0\0"s                  // document indices
    "\x03\0\0\0\x01\0\0\0\x02\0\0\0"s      // lengths
    "\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0"s  // pointers
    "\x08\0\0\0\0\0\0\0"s                  //
    "\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"s  // documents
    "\x03\0\0\0\0\0\0\0"s;                 //
const std::string kBin = "\x01\0\x02\0\x03\0\xFF\xFF\x04\0\x39\x30"s;
const std::vector<std::int64_t> kTokens = {1, 2, 3, 65535, 4, 12345};

constexpr std::size_t kDtypeAt = 17;

std::string with(std::string text, std::size_t at, char value) {
  text[at] = value;
  return text;
}

// Returns an index with one sequence of `tokens` tokens of type `dtype`.
std::string index_of(char dtype, char tokens) {
  return "MMIDIDX\0\0\x01\0\0\0\0\0\0\0"s + dtype + "\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"s +
         tokens + "\0\0\0"s + "\0\0\0\0\0\0\0\0"s + "\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"s;
}

class TokenFileTest : public testing::Test {
 protected:
  std::string open_pair(const std::string& bin, const std::string& index) {
    folder.write("x.bin", bin);
    folder.write("x.idx", index);
    return open_error(folder.path("x"));
  }
  TestFolder folder;
};

TEST_F(TokenFileTest, ReadsMegatronBytes) {
  ASSERT_EQ(open_pair(kBin, kIndex), "");
  for (const char* name : {"x", "x.bin", "x.idx"}) {
    const Result<TokenFile> file = TokenFile::open(folder.path(name));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(all_tokens(*file), kTokens);
    EXPECT_EQ(file->documents(), 2);
    EXPECT_EQ(file->dtype(), "uint16");
    EXPECT_EQ(file->name(), folder.path("x.bin"));
  }
}

TEST_F(TokenFileTest, ModesAfterTheIndexAreAllowed) {
  EXPECT_EQ(open_pair(kBin, kIndex + "\0\0\0"s), "");
  EXPECT_NE(open_pair(kBin, kIndex + "\0\0"s), "");
}

TEST_F(TokenFileTest, EveryIntegerTypeIsRead) {
  using Tokens = std::vector<std::int64_t>;
  const std::vector<std::tuple<char, std::string, std::string, Tokens>> cases = {
      {1, "uint8", "\x01\xFF"s, {1, 255}},
      {2, "int8", "\x01\xFF"s, {1, -1}},
      {3, "int16", "\x01\0\xFE\xFF"s, {1, -2}},
      {4, "int32", "\x01\0\x01\0\xFF\xFF\xFF\xFF"s, {65537, -1}},
      {5, "int64", "\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0"s, {4294967297, 2}},
      {8, "uint16", "\x01\0\xFF\xFF"s, {1, 65535}},
  };
  for (const auto& [dtype, name, bin, tokens] : cases) {
    ASSERT_EQ(open_pair(bin, index_of(dtype, 2)), "") << name;
    const Result<TokenFile> file = TokenFile::open(folder.path("x"));
    EXPECT_EQ(all_tokens(*file), tokens) << name;
    EXPECT_EQ(file->dtype(), name);
  }
}

TEST_F(TokenFileTest, EveryTruncationIsAnError) {
  for (std::size_t size = 0; size < kIndex.size(); ++size) {
    EXPECT_NE(open_pair(kBin, kIndex.substr(0, size)), "") << size;
  }
  for (std::size_t size = 0; size < kBin.size(); ++size) {
    EXPECT_NE(open_pair(kBin.substr(0, size), kIndex), "") << size;
  }
}

TEST_F(TokenFileTest, EveryChangedBitIsAnErrorOrHarmless) {
  for (std::size_t at = 0; at < kIndex.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      const auto changed = static_cast<char>(static_cast<unsigned char>(kIndex[at]) ^ (1U << bit));
      if (!open_pair(kBin, with(kIndex, at, changed)).empty()) continue;
      const Result<TokenFile> file = TokenFile::open(folder.path("x"));
      EXPECT_EQ(all_tokens(*file).size() * (file->dtype().ends_with("16") ? 2 : 1), kBin.size());
    }
  }
}

TEST_F(TokenFileTest, ErrorsNameTheFieldItsValueAndWhatIsRight) {
  const std::vector<std::tuple<std::size_t, char, std::string>> cases = {
      {0, 'X', "x.idx: magic: "},
      {9, 2, "x.idx: version: got 2; want 1"},
      {kDtypeAt, 7, "x.idx: dtype: got 7; want 1 (uint8)"},
      {18, 0, "x.idx: sequence count: got 0; want 1 to "},
      {25, '\x7F', "x.idx: sequence count: got 9151"},
      {26, 0, "x.idx: document count: got 0; want 2 to "},
      {26, 2, "x.idx: got 94 bytes; want 86 for 3 sequences and 2 document indices"},
      {37, '\x80', "x.idx: length of sequence 0: got -2147483645; want 0 or more"},
      {46, 4, "x.idx: pointer of sequence 0: got 4; want 0"},
      {54, 4, "x.idx: pointer of sequence 1: got 4; want 6"},
      {42, 3, "x.idx: length of sequence 2: got 3; want at most 2, the rest of "},
      {42, 1, "x.bin: got 12 bytes; want 10, as "},
      {70, 1, "x.idx: document index 0: got 1; want 0 to 0"},
      {86, 2, "x.idx: document index 2: got 2; want 3 to 3"},
      {78, 9, "x.idx: document index 1: got 9; want 0 to 3"},
  };
  for (const auto& [at, value, message] : cases) {
    const std::string error = open_pair(kBin, with(kIndex, at, value));
    EXPECT_TRUE(contains(error, message)) << at << ": " << error;
  }
}

TEST_F(TokenFileTest, AMissingHalfOfThePairIsNamed) {
  folder.write("a.bin", kBin);
  folder.write("b.idx", kIndex);
  EXPECT_TRUE(contains(open_error(folder.path("a.bin")), "a.idx: not found"));
  EXPECT_TRUE(contains(open_error(folder.path("a")), "a.idx: not found"));
  EXPECT_TRUE(contains(open_error(folder.path("b.idx")), "b.bin: not found"));
  EXPECT_TRUE(contains(open_error(folder.path("b")), "b.bin: not found"));
}

TEST_F(TokenFileTest, AnyOtherFileIsItsBytes) {
  const Result<TokenFile> file = TokenFile::open(folder.write("t.txt", "a\0\xFF"s));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(all_tokens(*file), (std::vector<std::int64_t>{'a', 0, 255}));
  EXPECT_EQ(file->documents(), 1);
  EXPECT_EQ(file->dtype(), "uint8");
}

TEST_F(TokenFileTest, WhatIsNotAFileOfTokensIsRefused) {
  EXPECT_TRUE(contains(open_error(folder.write("empty", "")), "empty: got an empty file"));
  EXPECT_TRUE(contains(open_error(folder.path("nothing")), "nothing: cannot open: No such file"));
  EXPECT_TRUE(contains(open_error(folder.path(".")), "got a folder; want a regular file"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(open_error(folder.path("pipe")), "got a device or a pipe"));
}

TEST_F(TokenFileTest, BytesInMemoryAreTokens) {
  const TokenFile file = TokenFile::from_bytes("hello", "greeting");
  const TokenFile copy = file;  // NOLINT(performance-unnecessary-copy-initialization): tested here
  EXPECT_EQ(all_tokens(copy), (std::vector<std::int64_t>{'h', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(file.name(), "greeting");
}

}  // namespace
}  // namespace copus
