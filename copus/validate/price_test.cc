#include "copus/validate/price.h"

#include <gtest/gtest.h>

#include <string>

namespace copus {
namespace {

// Eight GPUs, tp=8, as in the tables of Megatron-LM's runs.
MeasuredRun run_with(const std::string& gpu, const std::string& columns,
                     const std::string& values) {
  const std::string text = "layers,hidden,heads,seq_len,num_gpus,tp,micro_batch,gpu" + columns +
                           "\n" + "48,6144,64,2048,8,8,4," + gpu + values + "\n";
  const Result<CsvTable> table = parse_csv(text, "t.csv");
  const Result<MeasuredFile> file = measured_from_csv(*table, "t.csv");
  EXPECT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->runs[0].problem, "");
  return file->runs[0];
}
RunPrice priced(const MeasuredRun& run, const char* framework = "megatron") {
  return *price(run, framework_profile(framework).value());
}
Seconds time_of(const MeasuredRun& run, const char* framework = "megatron") {
  return priced(run, framework).step_time;
}

TEST(Price, APlainMlpMeansNeitherDropoutNorUnfusedAttentionOnHopper) {
  const MeasuredRun plain = run_with("H100-80GB-SXM", "", "");
  const MeasuredRun stated = run_with("H100-80GB-SXM", ",dropout", ",0.1");
  EXPECT_LT(time_of(plain), time_of(stated));
  EXPECT_LT(time_of(stated), time_of(plain) * 1.1) << "fused attention supports dropout";
}

TEST(Price, EarlyRunsOfMegatronHadUnfusedAttentionAndDropout) {
  const MeasuredRun early = run_with("A100-80GB-SXM", "", "");
  EXPECT_GT(time_of(early), time_of(early, "alpa") * 1.1) << "alpa states no early runs";
  EXPECT_LT(time_of(run_with("A100-80GB-SXM", ",dropout", ",0")), time_of(early));
  // Grouped queries came after fused attention.
  const MeasuredRun grouped = run_with("A100-80GB-SXM", ",kv_heads", ",8");
  EXPECT_LT(time_of(grouped), time_of(early) * 0.9);
}

TEST(Price, ARowWithoutRecomputeFitsIfSomeRecomputeMakesItFit) {
  MeasuredRun run = run_with("H100-80GB-SXM", ",recompute", ",none");
  run.plan.micro_batch = 16;
  run.global_batch = 16;
  EXPECT_FALSE(priced(run).fits);
  run.states_recompute = false;
  EXPECT_TRUE(priced(run).fits);
}

}  // namespace
}  // namespace copus
