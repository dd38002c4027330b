#include "copus/train/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "copus/train/data/builtin_corpus.h"
#include "copus/train/data/test_folder.h"
#include "copus/train/data/token_writer.h"

namespace copus {
namespace {

using Tokens = std::vector<std::int64_t>;

class DatasetTest : public testing::Test {
 protected:
  // Writes a pair of `count` tokens that count up from `begin`, and returns its prefix.
  std::string counting(const std::string& name, std::int32_t begin, std::int32_t count) {
    Result<TokenWriter> writer = TokenWriter::create(folder.path(name), {.vocab = 1'000'000});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), begin);
    EXPECT_TRUE(writer->add(tokens));
    EXPECT_TRUE(writer->finish());
    return folder.path(name);
  }
  static std::string error(const std::vector<std::string>& sources, const DatasetOptions& options) {
    const Result<Dataset> dataset = Dataset::open(sources, options);
    return dataset ? std::string() : dataset.error().message;
  }
  static Tokens sample(const Dataset& dataset, std::int64_t index) {
    Tokens out(static_cast<std::size_t>(dataset.seq_len() + 1));
    const Result<void> done = dataset.sample(index, out);
    EXPECT_TRUE(done) << done.error().message;
    return out;
  }
  static Tokens eval_sample(const Dataset& dataset, std::int64_t index) {
    Tokens out(static_cast<std::size_t>(dataset.seq_len() + 1));
    const Result<void> done = dataset.eval_sample(index, out);
    EXPECT_TRUE(done) << done.error().message;
    return out;
  }
  TestFolder folder;
};

TEST_F(DatasetTest, AnEpochIsEverySequenceOnceAndNoHeldOutOne) {
  const std::string path = counting("x", 0, 1003);
  for (const std::int64_t seq_len : {1, 7, 10, 100, 501}) {
    for (const std::uint64_t seed : {0U, 1U, 99U}) {
      const auto dataset =
          Dataset::open({path}, {.seq_len = seq_len, .seed = seed, .vocab = 1003, .held_out = 0.1});
      ASSERT_TRUE(dataset) << dataset.error().message;
      const std::int64_t sequences = 1002 / seq_len;
      EXPECT_EQ(dataset->eval_samples(), std::max<std::int64_t>(1, sequences / 10));
      EXPECT_EQ(dataset->epoch_samples() + dataset->eval_samples(), sequences);
      std::set<std::int64_t> held_out;
      for (std::int64_t i = 0; i < dataset->eval_samples(); ++i) {
        held_out.insert(eval_sample(*dataset, i)[0]);
      }
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        std::set<std::int64_t> seen;
        for (std::int64_t i = 0; i < dataset->epoch_samples(); ++i) {
          const Tokens tokens = sample(*dataset, epoch * dataset->epoch_samples() + i);
          EXPECT_EQ(tokens[0] % seq_len, 0);
          EXPECT_EQ(tokens.back(), tokens[0] + seq_len);
          EXPECT_EQ(held_out.count(tokens[0]), 0U);
          seen.insert(tokens[0]);
        }
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), dataset->epoch_samples());
      }
    }
  }
}

TEST_F(DatasetTest, ASampleDoesNotDependOnWhatWasAskedBefore) {
  const std::string path = counting("x", 0, 5000);
  const DatasetOptions options{.seq_len = 16, .seed = 3, .vocab = 5000};
  const auto forward = Dataset::open({path}, options);
  const auto backward = Dataset::open({path}, options);
  ASSERT_TRUE(forward && backward);
  std::vector<Tokens> ahead;
  for (std::int64_t i = 0; i < 700; ++i) ahead.push_back(sample(*forward, i));
  for (std::int64_t i = 699; i >= 0; --i) {
    EXPECT_EQ(sample(*backward, i), ahead[static_cast<std::size_t>(i)]);
  }
}

TEST_F(DatasetTest, SeedsAndEpochsDifferInOrder) {
  const std::string path = counting("x", 0, 5000);
  const auto one = Dataset::open({path}, {.seq_len = 16, .seed = 1, .vocab = 5000});
  const auto two = Dataset::open({path}, {.seq_len = 16, .seed = 2, .vocab = 5000});
  ASSERT_TRUE(one && two);
  int same_seed = 0;
  int same_epoch = 0;
  for (std::int64_t i = 0; i < one->epoch_samples(); ++i) {
    const Tokens tokens = sample(*one, i);
    same_seed += tokens == sample(*two, i) ? 1 : 0;
    same_epoch += tokens == sample(*one, i + one->epoch_samples()) ? 1 : 0;
  }
  EXPECT_LT(same_seed, 12);  // by chance, one sample is expected at the same index
  EXPECT_LT(same_epoch, 12);
}

TEST_F(DatasetTest, SequencesRunAcrossFiles) {
  const auto split = Dataset::open(
      {counting("a", 0, 5), counting("b", 5, 1), counting("c", 6, 2), counting("d", 8, 93)},
      {.seq_len = 9, .vocab = 1000, .held_out = 0});
  const auto whole =
      Dataset::open({counting("e", 0, 101)}, {.seq_len = 9, .vocab = 1000, .held_out = 0});
  ASSERT_TRUE(split && whole);
  EXPECT_EQ(split->tokens(), 101);
  EXPECT_EQ(split->epoch_samples(), 11);
  EXPECT_EQ(split->eval_samples(), 0);
  for (std::int64_t i = 0; i < 11; ++i) EXPECT_EQ(sample(*split, i), sample(*whole, i));
}

TEST_F(DatasetTest, BothHalvesOfAPairAreNotTwoFiles) {
  const std::string path = counting("x", 0, 100);
  EXPECT_EQ(
      error({path + ".bin", path + ".idx"}, {.seq_len = 8, .vocab = 100}),
      "data: got " + path + ".bin and " + path + ".idx, which are one pair; want one of them");
  EXPECT_EQ(error({path, path}, {.seq_len = 8, .vocab = 100}), "");  // the user wants it twice
}

TEST_F(DatasetTest, ATokenOutsideTheVocabularyIsNamedWithItsFileAndPosition) {
  const auto dataset = Dataset::open({counting("a", 0, 20), counting("b", 0, 41)},
                                     {.seq_len = 60, .vocab = 40, .held_out = 0});
  ASSERT_TRUE(dataset);
  Tokens out(61);
  const Result<void> done = dataset->sample(0, out);
  ASSERT_FALSE(done);
  EXPECT_TRUE(contains(done.error().message, "b.bin: token 40: got 40; want 0 to 39"))
      << done.error().message;
}

TEST_F(DatasetTest, ANegativeTokenIsAnError) {
  using std::string_literals::operator""s;
  folder.write("n.bin", "\x01\xFF\x02"s);
  folder.write("n.idx",
               "MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x02"s
               "\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0"s
               "\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"s);
  const auto dataset = Dataset::open({folder.path("n")}, {.seq_len = 2, .held_out = 0});
  ASSERT_TRUE(dataset) << dataset.error().message;
  Tokens out(3);
  const Result<void> done = dataset->sample(0, out);
  ASSERT_FALSE(done);
  EXPECT_TRUE(contains(done.error().message, "n.bin: token 1: got -1; want 0 to 255"));
}

TEST_F(DatasetTest, TooLittleDataSaysHowMuchIsThereAndHowMuchIsNeeded) {
  const std::string path = counting("x", 0, 20);
  const DatasetOptions options{.seq_len = 10, .vocab = 20, .held_out = 0.01};
  EXPECT_TRUE(contains(error({path}, options), "x.bin: got 20 tokens; want 21 or more"));
  EXPECT_EQ(error({path}, {.seq_len = 10, .vocab = 20, .held_out = 0}), "");
  EXPECT_EQ(error({path, counting("y", 0, 1)}, options), "");
}

TEST_F(DatasetTest, ImpossibleOptionsAreRefused) {
  const std::string path = counting("x", 0, 20);
  EXPECT_TRUE(contains(error({path}, {.seq_len = 0}), "seq_len: got 0"));
  EXPECT_TRUE(contains(error({path}, {.seq_len = INT64_MAX}), "seq_len: got 9223372036854775807"));
  EXPECT_TRUE(contains(error({path}, {.vocab = 0}), "vocab: got 0"));
  EXPECT_TRUE(contains(error({path}, {.held_out = 1}), "held_out: got 1"));
  EXPECT_TRUE(contains(error({path}, {.held_out = -0.1}), "held_out: got -0.1"));
  EXPECT_TRUE(contains(error({path}, {.held_out = std::nan("")}), "held_out: got nan"));
  EXPECT_TRUE(contains(error({}, {}), "data: got no files"));
  EXPECT_TRUE(contains(error({path, "builtin"}, {}), "data: got builtin among 2 sources"));
  EXPECT_EQ(error({path}, {.seq_len = 1, .vocab = 20, .held_out = 0.999999}), "");
}

TEST_F(DatasetTest, BuiltinNeedsNoFile) {
  const auto dataset = Dataset::open({"builtin"}, {.seq_len = 256});
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->tokens(), static_cast<std::int64_t>(kBuiltinCorpusBytes));
  for (std::int64_t i = 0; i < 100; ++i) {
    const Tokens tokens = sample(*dataset, i);
    EXPECT_TRUE(std::all_of(tokens.begin(), tokens.end(), [](auto t) { return t < 128; }));
  }
}

}  // namespace
}  // namespace copus
