#include "copus/train/data/token_writer.h"

#include <gtest/gtest.h>

#include "copus/train/data/random.h"
#include "copus/train/data/test_folder.h"

namespace copus {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

class TokenWriterTest : public testing::Test {
 protected:
  std::string write(const Documents& documents, const TokenWriterOptions& options) {
    Result<TokenWriter> writer = TokenWriter::create(folder.path("x"), options);
    if (!writer) return writer.error().message;
    for (const auto& document : documents) {
      if (const auto added = writer->add(document); !added) return added.error().message;
      if (const auto ended = writer->end_document(); !ended) return ended.error().message;
    }
    const Result<void> finished = writer->finish();
    return finished ? std::string() : finished.error().message;
  }
  TestFolder folder;
};

TEST_F(TokenWriterTest, WhatIsWrittenIsReadBack) {
  Random random(7);
  for (const std::int64_t vocab : {2, 256, 65499, 65500, 128256}) {
    // Documents of 0 to 11 tokens: they end at, before and after the end of a longest sequence.
    for (const std::int64_t longest : {1, 3, 1 << 30}) {
      Documents documents;
      std::vector<std::int64_t> all;
      std::int64_t count = 0;
      for (std::uint32_t length = 0; length < 12; ++length) {
        auto& document = documents.emplace_back();
        for (std::uint32_t i = 0; i < length; ++i) {
          document.push_back(
              static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocab))));
        }
        all.insert(all.end(), document.begin(), document.end());
        count += length > 0 ? 1 : 0;
      }
      ASSERT_EQ(write(documents, {.vocab = vocab, .overwrite = true, .max_sequence = longest}), "");
      const Result<TokenFile> file = TokenFile::open(folder.path("x"));
      ASSERT_TRUE(file) << file.error().message;
      EXPECT_EQ(all_tokens(*file), all);
      EXPECT_EQ(file->documents(), count);
      EXPECT_EQ(file->dtype(), vocab < 65500 ? "uint16" : "int32");
    }
  }
}

TEST_F(TokenWriterTest, MoreDocumentsThanOneBlockKeepTheirPlaces) {
  const Documents documents(150'000, {1, 2, 3});
  ASSERT_EQ(write(documents, {}), "");
  const Result<TokenFile> file = TokenFile::open(folder.path("x"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->documents(), 150'000);
  EXPECT_EQ(file->size(), 450'000);
}

TEST_F(TokenWriterTest, BytesAreMegatronLms) {
  using std::string_literals::operator""s;
  ASSERT_EQ(write({{5, 258}, {7}}, {.vocab = 300}), "");
  EXPECT_EQ(folder.read("x.bin"), "\x05\0\x02\x01\x07\0"s);
  EXPECT_EQ(folder.read("x.idx"),
            "MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"s
            "\x02\0\0\0\x01\0\0\0"s
            "\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0"s
            "\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"s);
}

TEST_F(TokenWriterTest, NothingIsLeftWithoutFinish) {
  {
    Result<TokenWriter> writer = TokenWriter::create(folder.path("x"), {});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add(std::vector<std::int32_t>{1, 2}));
    EXPECT_NE(open_error(folder.path("x")), "");
  }
  EXPECT_EQ(folder.names().size(), 0U);
}

TEST_F(TokenWriterTest, AnOldPairStandsUntilTheNewOneIsFinished) {
  ASSERT_EQ(write({{1, 2, 3}}, {}), "");
  {
    Result<TokenWriter> writer = TokenWriter::create(folder.path("x"), {.overwrite = true});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add(std::vector<std::int32_t>{9}));
  }
  const Result<TokenFile> file = TokenFile::open(folder.path("x"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(all_tokens(*file), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST_F(TokenWriterTest, AnExistingHalfIsNotReplacedUnlessTold) {
  folder.write("x.idx", "mine");
  EXPECT_TRUE(contains(write({{1}}, {}), "x.idx: exists; want another output"));
  EXPECT_EQ(folder.read("x.idx"), "mine");
  EXPECT_EQ(write({{1}}, {.overwrite = true}), "");
}

TEST_F(TokenWriterTest, WhatCannotBeWrittenIsAnError) {
  EXPECT_TRUE(contains(write({{1, 256}}, {}), "token 1: got 256; want 0 to 255"));
  EXPECT_TRUE(contains(write({{-1}}, {}), "token 0: got -1; want 0 to 255"));
  EXPECT_TRUE(contains(write({{}, {}}, {}), "got no tokens to write"));
  EXPECT_FALSE(TokenWriter::create(folder.path("no/such/x"), {}));
  EXPECT_FALSE(TokenWriter::create(folder.path(""), {}));
  EXPECT_FALSE(TokenWriter::create("", {}));
  EXPECT_EQ(folder.names().size(), 0U);
}

}  // namespace
}  // namespace copus
