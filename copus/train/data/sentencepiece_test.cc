// Tests the SentencePiece tokenizer with a model that the test trains on the builtin corpus.
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <algorithm>

#include "copus/train/data/builtin_corpus.h"
#include "copus/train/data/documents.h"
#include "copus/train/data/test_folder.h"
#include "copus/train/data/tokenizer.h"

namespace copus {
namespace {

class SentencePieceTest : public testing::Test {
 protected:
  std::string train() {
    const std::string text = folder.write("text", builtin_corpus(100'000));
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--input=" + text + " --model_prefix=" + folder.path("m") +
        " --vocab_size=400 --model_type=bpe --num_threads=1 --minloglevel=2");
    EXPECT_TRUE(status.ok()) << status.message();
    return folder.path("m.model");
  }
  TestFolder folder;
};

TEST_F(SentencePieceTest, TextComesBackFromFewerTokens) {
  const auto tokenizer = load_tokenizer(train());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocab(), 400);
  const std::string text = "Lo stio de Trashelor.";
  std::vector<std::int32_t> tokens;
  ASSERT_TRUE((*tokenizer)->encode(text, tokens));
  EXPECT_LT(tokens.size(), text.size() * 2 / 3);
  const auto back = (*tokenizer)->decode(tokens);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, text);

  TokenizeOptions options;
  options.split = DocumentSplit::kBlankLine;
  options.append_end = true;
  const auto totals = tokenize_files({folder.path("text")}, **tokenizer, folder.path("x"), options);
  ASSERT_TRUE(totals) << totals.error().message;
  const Result<TokenFile> file = TokenFile::open(folder.path("x"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->documents(), totals->documents);
  const std::vector<std::int64_t> all = all_tokens(*file);
  EXPECT_EQ(std::count(all.begin(), all.end(), *(*tokenizer)->end_of_document()),
            totals->documents);
}

TEST_F(SentencePieceTest, WhatIsNoModelIsRefused) {
  for (const std::string& content : {std::string("not a model"), std::string(1000, '\xFF')}) {
    const auto tokenizer = load_tokenizer(folder.write("bad.model", content));
    ASSERT_FALSE(tokenizer);
    EXPECT_TRUE(contains(tokenizer.error().message, "bad.model: got something else"));
  }
}

}  // namespace
}  // namespace copus
