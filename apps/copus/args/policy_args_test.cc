#include "apps/copus/args/policy_args.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

BatchRange batches_of(const UsualBatches& usual, std::int64_t start) {
  const DecisionArgs args(nullptr, kAdapting, usual);
  return resolve_batches(args, start).value();
}

TEST(ResolveBatches, AreThoseThatHelpNamesIfTheUserGivesNone) {
  EXPECT_EQ(batches_of(kFromAQuarter, 16), (BatchRange{4, 1024}));
  EXPECT_EQ(batches_of(kFromTheStart, 16), (BatchRange{16, 1024}));
  // Halving stops at an odd batch.
  EXPECT_EQ(batches_of(kFromAQuarter, 6), (BatchRange{3, 384}));
  EXPECT_EQ(batches_of(kFromAQuarter, 1), (BatchRange{1, 64}));
  for (const UsualBatches& usual : {kFromAQuarter, kFromTheStart}) {
    const DecisionArgs args(nullptr, kAdapting, usual);
    EXPECT_EQ(args.batches.default_text(), usual.text);
  }
}

TEST(ResolveBatches, OfTheUserMustHoldTheBatchThatTheRunBeginsWith) {
  DecisionArgs args(nullptr, kAdapting, kFromTheStart);
  ASSERT_TRUE(args.batches.read({"8:64"}, From::kCommandLine, "--batch-range"));
  EXPECT_EQ(*resolve_batches(args, 8), (BatchRange{8, 64}));
  const auto refused = resolve_batches(args, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "--batch-range: got 8:64; want one that holds --global-batch 4");
}

}  // namespace
}  // namespace copus
