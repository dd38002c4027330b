#include "copus/cost/options.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace copus {
namespace {

std::string error_of(const std::string& text) {
  const Result<CostOptions> result = apply_assumptions(CostOptions(), text);
  EXPECT_FALSE(result.has_value()) << text;
  return result ? "" : result.error().message;
}

TEST(Assumptions, OfNothingAreTheDefaults) {
  const CostOptions options = apply_assumptions(CostOptions(), "").value();
  EXPECT_EQ(options_to_json(options), options_to_json(CostOptions()));
}

TEST(Assumptions, AreReadInTheUnitOfTheirName) {
  const CostOptions options =
      apply_assumptions(CostOptions(),
                        "attention=unfused,grad_overlap=none,tp_skew_us=12.5,step_overhead_ms=3,"
                        "fixed_memory_gib=4,tp_overlap=0.5,optimizer_bytes=8")
          .value();
  EXPECT_EQ(options.attention, AttentionKernel::kUnfused);
  EXPECT_EQ(options.grad_overlap, GradOverlap::kNone);
  EXPECT_DOUBLE_EQ(options.tp_skew.v, 12.5e-6);
  EXPECT_DOUBLE_EQ(options.step_overhead.v, 3e-3);
  EXPECT_DOUBLE_EQ(options.fixed_memory.v, gib(4).v);
  EXPECT_DOUBLE_EQ(options.tp_overlap, 0.5);
  EXPECT_DOUBLE_EQ(options.optimizer_bytes, 8);
}

TEST(Assumptions, ThatAreNotStatedStayAsTheyWere) {
  CostOptions before;
  before.cp_overlap = 0.25;
  EXPECT_DOUBLE_EQ(apply_assumptions(before, "tp_overlap=1").value().cp_overlap, 0.25);
}

TEST(Assumptions, AreAllPrintedAndReadBack) {
  const CostOptions other =
      apply_assumptions(CostOptions(), "stage_cut=work,grad_overlap=replicated").value();
  EXPECT_EQ(options_to_json(other)["stage_cut"], "work");
  EXPECT_EQ(options_to_json(other)["grad_overlap"], "replicated");
  // Every key except the precision, which has its own flag, is an option of --assume.
  const Json json = options_to_json(CostOptions());
  EXPECT_GE(json.size(), 10u);
  for (const auto& [name, value] : json.items()) {
    if (name == "precision") continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const Result<CostOptions> read =
        apply_assumptions(CostOptions(), fmt::format("{}={}", name, text));
    ASSERT_TRUE(read.has_value()) << read.error().message;
    const Json printed = options_to_json(*read);
    if (value.is_string()) {
      EXPECT_EQ(printed[name], value);
    } else {
      EXPECT_DOUBLE_EQ(printed[name].get<double>(), value.get<double>()) << name;
    }
  }
}

TEST(Assumptions, OfAnUnknownNameAreAnErrorWithTheNearest) {
  const std::string error = error_of("tp_overlp=1");
  EXPECT_NE(error.find("tp_overlp"), std::string::npos) << error;
  EXPECT_NE(error.find("tp_overlap"), std::string::npos) << error;
}

TEST(Assumptions, OutOfRangeNameTheValueAndTheRange) {
  for (const char* value : {"-0.1", "1.5", "nan", "inf", "-inf", "1e999", "", "x", "0.5x"}) {
    const std::string error = error_of(std::string("tp_overlap=") + value);
    EXPECT_NE(error.find("tp_overlap"), std::string::npos) << error;
    EXPECT_NE(error.find("want"), std::string::npos) << error;
  }
  EXPECT_NE(error_of("attention=flash").find("auto, fused or unfused"), std::string::npos);
  EXPECT_NE(error_of("grad_overlap=yes").find("auto, none, last_backward or replicated"),
            std::string::npos);
  EXPECT_NE(error_of("stage_cut=even").find("layers or work"), std::string::npos);
}

TEST(Assumptions, WithoutAValueAreAnError) {
  EXPECT_NE(error_of("tp_overlap").find("name=value"), std::string::npos);
  EXPECT_NE(error_of("tp_overlap=1,").find("want"), std::string::npos);
  EXPECT_NE(error_of(",").find("want"), std::string::npos);
  EXPECT_NE(error_of("=").find("want"), std::string::npos);
}

TEST(Assumptions, OfAFileTellTheirNameBesideTheMessageOfAnError) {
  const auto error = options_from_json({{"grad_bytes", "1,2"}}, "f.json").error();
  EXPECT_EQ(error.message, "f.json: grad_bytes: got 1,2; want one value");
  EXPECT_EQ(error.field, "grad_bytes");
}

TEST(OptimizerBytes, LeaveTheMasterCopyOutWhereWeightsAreTheirOwn) {
  CostOptions options;
  EXPECT_EQ(optimizer_bytes(options), 12);
  options.precision = Precision::kFp32;
  EXPECT_EQ(optimizer_bytes(options), 8);
  options.optimizer_bytes = 0;
  EXPECT_EQ(optimizer_bytes(options), 0);
}

TEST(RingAttention, NeedsAFusedKernel) {
  GpuSpec gpu;
  gpu.name = "V100";
  gpu.fused_attention = false;
  CostOptions options;
  EXPECT_TRUE(check_ring_attention(options, gpu, 1));
  EXPECT_EQ(check_ring_attention(options, gpu, 2).error().message,
            "cp: got 2; want 1, because V100 has no fused attention, which a split sequence needs "
            "(if you have such a kernel: --assume attention=fused)");
  options.attention = AttentionKernel::kFused;
  EXPECT_TRUE(check_ring_attention(options, gpu, 2));
  gpu.fused_attention = true;
  options.attention = AttentionKernel::kUnfused;
  EXPECT_EQ(check_ring_attention(options, gpu, 2).error().message,
            "cp: got 2 with attention=unfused; want 1, or fused attention, which a split sequence "
            "needs");
  options.attention = AttentionKernel::kAuto;
  EXPECT_TRUE(check_ring_attention(options, gpu, 2));
}

TEST(GradientBytes, FollowThePrecisionUnlessStated) {
  CostOptions options;
  EXPECT_EQ(gradient_bytes(options), 4);
  options.precision = Precision::kFp16;
  EXPECT_EQ(gradient_bytes(options), 2);
  options.precision = Precision::kFp32;
  EXPECT_EQ(gradient_bytes(options), 4);
  options.grad_bytes = 1;
  EXPECT_EQ(gradient_bytes(options), 1);
}

}  // namespace
}  // namespace copus
