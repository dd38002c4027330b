#include "copus/train/data/documents.h"

#include <gtest/gtest.h>

#include "copus/train/data/builtin_corpus.h"
#include "copus/train/data/test_folder.h"

namespace copus {
namespace {

using Texts = std::vector<std::string>;

Texts split(std::string_view text, DocumentSplit how, std::size_t block) {
  Texts documents = {""};
  DocumentSplitter splitter(how);
  while (!text.empty()) {
    std::string_view part = text.substr(0, block);
    text.remove_prefix(part.size());
    while (!part.empty()) {
      const std::size_t taken = splitter.take(part);
      documents.back() += part.substr(0, taken);
      if (taken < part.size()) documents.emplace_back();
      part.remove_prefix(taken);
    }
  }
  return documents;
}

TEST(DocumentSplitter, DocumentsBeginWhereTheRuleSays) {
  const std::string text = "\na\nb\n\n\r\nc\nd";
  EXPECT_EQ(split(text, DocumentSplit::kNone, 100), (Texts{text}));
  EXPECT_EQ(split(text, DocumentSplit::kBlankLine, 100), (Texts{"\na\nb\n\n\r\n", "c\nd"}));
  EXPECT_EQ(split(text, DocumentSplit::kLine, 100), (Texts{"\na\n", "b\n\n\r\n", "c\n", "d"}));
}

TEST(DocumentSplitter, BlocksDoNotMatterAndNoByteIsLost) {
  const std::string text = "\n\n" + builtin_corpus(20'000) + "\r\n\r\n\n\nend\n\n";
  for (const DocumentSplit how : {DocumentSplit::kBlankLine, DocumentSplit::kLine}) {
    const Texts whole = split(text, how, text.size());
    EXPECT_GT(whole.size(), 5U);
    std::string joined;
    for (const std::string& document : whole) joined += document;
    EXPECT_EQ(joined, text);
    for (const std::size_t block : {1U, 2U, 3U, 7U, 1000U})
      EXPECT_EQ(split(text, how, block), whole);
  }
}

class TokenizeTest : public testing::Test {
 protected:
  Result<TokenizeTotals> tokenize(const Texts& inputs, const TokenizeOptions& options) {
    return tokenize_files(inputs, *byte_tokenizer(), folder.path("x"), options);
  }
  std::string text_of_tokens() {
    const Result<TokenFile> file = TokenFile::open(folder.path("x"));
    if (!file) return file.error().message;
    std::string text;
    for (const std::int64_t token : all_tokens(*file)) text += static_cast<char>(token);
    return text;
  }
  TestFolder folder;
};

TEST_F(TokenizeTest, BytesComeBackAsTheyWere) {
  // Longer than the text that is read and encoded at once, without a line or a space to cut at.
  const std::string a = builtin_corpus(3'000'000) + std::string(2'500'000, '\xE4') + " z";
  const std::string b = "\xC3\xA4\n";
  const auto totals = tokenize({folder.write("a", a), folder.write("b", b)}, {});
  ASSERT_TRUE(totals) << totals.error().message;
  EXPECT_EQ(text_of_tokens(), a + b);
  EXPECT_EQ(totals->documents, 2);
  EXPECT_EQ(totals->tokens, totals->bytes);
}

TEST_F(TokenizeTest, EachDocumentEndsInTheEndToken) {
  using std::string_literals::operator""s;
  TokenizeOptions options;
  options.split = DocumentSplit::kLine;
  options.append_end = true;
  const auto totals = tokenize({folder.write("a", "one\n\ntwo\n"), folder.write("b", "")}, options);
  ASSERT_TRUE(totals) << totals.error().message;
  EXPECT_EQ(text_of_tokens(), "one\n\n\0two\n\0"s);
  EXPECT_EQ(totals->documents, 2);
}

TEST_F(TokenizeTest, ProgressReachesTheSizeOfTheInput) {
  TokenizeOptions options;
  std::int64_t last = 0;
  options.progress = [&](std::int64_t bytes) {
    EXPECT_GT(bytes, last);
    last = bytes;
  };
  ASSERT_TRUE(tokenize({folder.write("a", std::string(3'000'000, 'a'))}, options));
  EXPECT_EQ(last, 3'000'000);
}

TEST_F(TokenizeTest, BadInputLeavesNothing) {
  folder.write("a", "text");
  const auto missing = tokenize({folder.path("a"), folder.path("b")}, {});
  ASSERT_FALSE(missing);
  EXPECT_TRUE(contains(missing.error().message, "b: cannot open: No such file"));
  const auto is_folder = tokenize({folder.path(".")}, {});
  ASSERT_FALSE(is_folder);
  EXPECT_TRUE(contains(is_folder.error().message, "got a folder; want a file of text"));
  EXPECT_EQ(folder.names(), Texts{"a"});
}

TEST(Tokenizer, OnlyBytesAndModelsAreKnown) {
  ASSERT_TRUE(load_tokenizer("bytes"));
  EXPECT_FALSE(load_tokenizer("byte"));
  EXPECT_FALSE(load_tokenizer("/no/such.model"));
}

}  // namespace
}  // namespace copus
