#include "copus/cost/spread.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

Spread spread_of(const char* framework, const char* gpu, Precision precision = Precision::kBf16) {
  return prediction_spread(framework_profile(framework).value(), gpu, precision).value();
}

TEST(PredictionSpread, OfAJobLikeComparedRunsIsThatOfTheRuns) {
  const Spread seen = spread_of("megatron", "A100-80GB-SXM");
  EXPECT_GT(seen.runs, 0);
  EXPECT_TRUE(seen.unseen.empty());
  EXPECT_GT(seen.order, 0);
}

TEST(PredictionSpread, OfAnExtrapolationIsWiderAndSaysWhatIsNew) {
  const Spread seen = spread_of("megatron", "A100-80GB-SXM");
  const Spread gpu = spread_of("megatron", "B200");
  const Spread precision = spread_of("megatron", "A100-80GB-SXM", Precision::kFp8);
  const Spread framework = spread_of("deepspeed", "A100-80GB-SXM");
  for (const Spread& other : {gpu, precision, framework}) {
    EXPECT_EQ(other.runs, 0);
    EXPECT_GT(other.time, seen.time);
    EXPECT_GT(other.order, seen.order);
  }
  EXPECT_EQ(gpu.unseen, std::vector<std::string>{"Megatron-LM on B200"});
  EXPECT_EQ(precision.unseen, std::vector<std::string>{"Megatron-LM in fp8 on A100-80GB-SXM"});
  EXPECT_EQ(framework.unseen, std::vector<std::string>{"DeepSpeed"});
}

TEST(PredictionSpread, OfFp8IsTheSameHoweverItIsScaled) {
  const Spread plain = spread_of("megatron", "GB200", Precision::kFp8);
  ASSERT_GT(plain.runs, 0);
  for (const Precision scaled : {Precision::kFp8Current, Precision::kMxfp8}) {
    EXPECT_EQ(spread_of("megatron", "GB200", scaled).runs, plain.runs);
    EXPECT_EQ(spread_of("megatron", "GB200", scaled).time, plain.time);
  }
  EXPECT_EQ(spread_of("megatron", "GB200", Precision::kNvfp4).unseen,
            std::vector<std::string>{"Megatron-LM in nvfp4 on GB200"});
}

TEST(PredictionSpread, OfAFrameworkIsFilledByItsAnalogy) {
  const Spread filled = spread_of("nemo", "H100-80GB-SXM");
  const Spread analogy = spread_of("megatron", "H100-80GB-SXM");
  EXPECT_TRUE(filled.unseen.empty());
  EXPECT_EQ(filled.runs_of, "megatron");
  EXPECT_EQ(filled.runs, analogy.runs);
  EXPECT_EQ(filled.time, analogy.time);
  EXPECT_EQ(spread_of("nemo", "H100-80GB-SXM", Precision::kFp8).runs_of, "nemo");
}

// Runs of frameworks that have nothing to do with it say nothing: the worst of them is off by 42%.
TEST(PredictionSpread, OfAFrameworkWithoutRunsAndAnalogyIsThatOfUnseenRuns) {
  const FrameworkProfile alone = framework_profile("fsdp2").value();
  ASSERT_TRUE(alone.analogy.empty());
  const Spread spread = spread_of("fsdp2", "H100-80GB-SXM");
  EXPECT_EQ(spread.unseen, std::vector<std::string>{"FSDP2"});
  EXPECT_EQ(spread.time, spread_of("deepspeed", "H100-80GB-SXM").time);
  EXPECT_LT(spread.time, spread_of("megatron-deepspeed", "H100-80GB-SXM").time);
}

TEST(PredictionSpread, IsKnownForEveryFrameworkOfTheCatalog) {
  for (const std::string& name : framework_names()) {
    const Spread spread = spread_of(name.c_str(), "H100-80GB-SXM");
    EXPECT_GT(spread.time, 0) << name;
    EXPECT_LT(spread.time, 1) << name;
    EXPECT_GT(spread.order, 0) << name;
    EXPECT_EQ(spread.unseen.empty(), spread.runs > 0) << name;
  }
}

}  // namespace
}  // namespace copus
