#include "copus/validate/likely_reason.h"

#include <gtest/gtest.h>

#include <string>

#include "copus/base/csv.h"

namespace copus {
namespace {

constexpr const char* kHeader =
    "id,model,layers,hidden,heads,vocab,seq_len,gpu,num_gpus,tp,pp,dp,micro_batch,global_batch,"
    "precision,step_time_s,peak_mem_gib\n";

// Reads a made-up table with the columns of kHeader.
MeasuredFile runs_of(const std::string& rows) {
  Result<CsvTable> table = parse_csv(kHeader + rows, "made-up");
  EXPECT_TRUE(table) << table.error().message;
  Result<MeasuredFile> file = measured_from_csv(*table, "made-up");
  EXPECT_TRUE(file) << file.error().message;
  return *file;
}

MeasuredRun run_of_row(const std::string& row) {
  MeasuredFile file = runs_of(row);
  EXPECT_EQ(file.runs[0].problem, "");
  file.runs[0].assumed.clear();
  return file.runs[0];
}

RunPrice price_of(const StepBreakdown& breakdown) {
  RunPrice price;
  price.estimate.breakdown = breakdown;
  price.step_time = breakdown.total();
  price.fits = true;
  return price;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const char* const kLarge = "a,GPT,32,4096,32,51200,2048,A100-80GB-SXM,64,8,1,8,4,256,bf16,9,\n";

TEST(LikelyReason, NamesThePartThatDominates) {
  const MeasuredRun run = run_of_row(kLarge);
  StepBreakdown b;
  b.compute = Seconds(2);
  b.dp = Seconds(3);
  std::string reason = likely_reason(run, price_of(b), std::nullopt);
  EXPECT_TRUE(contains(reason, "data-parallel communication over 8 nodes is 60% of")) << reason;
  b.tp = Seconds(5);
  reason = likely_reason(run, price_of(b), std::nullopt);
  EXPECT_TRUE(contains(reason, "tensor-parallel communication over 8 GPUs is 50% of")) << reason;
}

TEST(LikelyReason, ComparesTheUseOfThePeak) {
  const MeasuredRun run = run_of_row(kLarge);
  StepBreakdown b;
  b.compute = Seconds(4);
  b.tp = Seconds(1);
  const std::string reason = likely_reason(run, price_of(b), std::nullopt);
  EXPECT_TRUE(contains(reason, "compute is 80% of the prediction")) << reason;
  EXPECT_TRUE(contains(reason, "use of peak: predicted ")) << reason;
}

TEST(LikelyReason, SaysThatTinyLayersAreLaunchBound) {
  const MeasuredRun run =
      run_of_row("a,GPT,4,256,4,1000,128,A100-80GB-SXM,1,1,1,1,1,8,bf16,0.1,\n");
  StepBreakdown b;
  b.compute = Seconds(0.05);
  const std::string reason = likely_reason(run, price_of(b), std::nullopt);
  EXPECT_TRUE(contains(reason, "predicted launch-bound")) << reason;
}

TEST(LikelyReason, StatesWhatWasAssumed) {
  MeasuredRun run = run_of_row(kLarge);
  run.assumed = {"vocab=51200", "recompute=none"};
  StepBreakdown b;
  b.compute = Seconds(4);
  const std::string reason = likely_reason(run, price_of(b), std::nullopt);
  EXPECT_TRUE(contains(reason, "assumed vocab=51200, recompute=none")) << reason;
}

TEST(LikelyReason, SuspectsFullMemoryOnlyOfSlowRuns) {
  MeasuredRun run = run_of_row(kLarge);
  run.peak_memory = gib(78);
  StepBreakdown b;
  b.compute = Seconds(4);
  EXPECT_TRUE(contains(likely_reason(run, price_of(b), std::nullopt), "measured 78 of"));
  run.step_time = Seconds(1);
  EXPECT_FALSE(contains(likely_reason(run, price_of(b), std::nullopt), "measured 78 of"));
}

std::vector<PricedRun> priced(const MeasuredFile& file) {
  std::vector<PricedRun> runs;
  for (const MeasuredRun& run : file.runs) {
    StepBreakdown b;
    b.compute = Seconds(1);
    runs.push_back({&run, price_of(b)});
  }
  return runs;
}

TEST(Twins, AreRowsOfOneConfigurationThatContradictEachOther) {
  const std::string configuration = "GPT,32,4096,32,51200,2048,A100-80GB-SXM,64,8,1,8,4,256,bf16,";
  const MeasuredFile file = runs_of("fast," + configuration + "2,\nmiddle," + configuration +
                                    "3,\nslow," + configuration + "10,\n");
  const std::vector<PricedRun> runs = priced(file);
  const auto twins = find_twins(runs);
  ASSERT_EQ(twins.size(), 3U);
  EXPECT_EQ(twins[0]->run->id, "slow");
  EXPECT_NEAR(twins[0]->ratio, 0.2, 1e-12);
  EXPECT_EQ(twins[1]->run->id, "slow");  // its factor is 3.3 to the slow run, 1.5 to the fast run
  EXPECT_EQ(twins[2]->run->id, "fast");
  EXPECT_NEAR(twins[2]->ratio, 5, 1e-12);
  EXPECT_TRUE(contains(likely_reason(*runs[2].run, *runs[2].price, twins[2]),
                       "measured 5.0x slower than fast of the same configuration"));
  EXPECT_TRUE(contains(likely_reason(*runs[0].run, *runs[0].price, twins[0]),
                       "measured 5.0x faster than slow of the same configuration"));
}

TEST(Twins, NeedTheSamePlanAndMoreThanAFifth) {
  const MeasuredFile file = runs_of(
      "a,GPT,32,4096,32,51200,2048,A100-80GB-SXM,64,8,1,8,4,256,bf16,2,\n"
      "b,GPT,32,4096,32,51200,2048,A100-80GB-SXM,64,8,1,8,4,256,bf16,2.3,\n"
      "c,GPT,32,4096,32,51200,2048,A100-80GB-SXM,64,8,1,8,2,256,bf16,9,\n");
  for (const auto& twin : find_twins(priced(file))) EXPECT_FALSE(twin);
}

}  // namespace
}  // namespace copus
