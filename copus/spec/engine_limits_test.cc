#include "copus/spec/engine_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/plan_rules.h"

namespace copus {
namespace {

EngineLimits limits(const Json& json) {
  EngineLimits read = engine_limits_from_json(json, "limits").value();
  read.engine = "mine";
  return read;
}

// Returns the error about this plan, or "ok".
std::string verdict(const char* plan, const Json& json, const char* model = "llama-3-8b") {
  const EngineLimits own = limits(json);
  ParallelPlan whole = parse_plan_text(plan, "--plan").value().plan;
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  whole.dp = cluster.gpus() / (whole.tp * whole.cp * whole.pp);
  const ModelSpec spec = load_model(model).value();
  EXPECT_TRUE(whole.validate(spec, cluster, 4096, 64).has_value()) << plan;
  const Result<void> valid = whole.validate(spec, cluster, 4096, 64, StageCut::kLayers, &own);
  return valid ? "ok" : valid.error().message;
}

TEST(EngineLimits, ForbidNothingIfNothingIsStated) {
  for (const char* plan :
       {"tp=8,sp=1,pp=2,zero=1", "zero=3,recompute=selective", "cp=2,pp=2,schedule=zero_bubble",
        "tp=2", "pp=4,vp=2,schedule=interleaved"}) {
    EXPECT_EQ(verdict(plan, Json::object()), "ok") << plan;
  }
}

TEST(EngineLimits, NameTheFieldTheValueAndTheEngine) {
  EXPECT_EQ(verdict("tp=2,zero=1", {{"tp", 1}}),
            "tp: got 2; want 1, because mine runs no tensor parallelism");
  EXPECT_EQ(verdict("tp=8", {{"tp", 4}}), "tp: got 8; want at most 4, the limit of mine");
  EXPECT_EQ(verdict("pp=2", {{"pp", 1}}), "pp: got 2; want 1, because mine runs no pipelines");
  EXPECT_EQ(verdict("pp=2,vp=2,schedule=interleaved", {{"vp", 1}}),
            "vp: got 2; want 1, because mine runs no virtual stages");
  EXPECT_EQ(verdict("cp=2", {{"cp", 1}}),
            "cp: got 2; want 1, because mine runs no context parallelism");
  EXPECT_EQ(verdict("recompute=selective", {{"recompute", {"none", "full"}}}),
            "recompute: got selective; want none or full, which mine runs");
  EXPECT_EQ(verdict("pp=2,schedule=gpipe", {{"schedule", {"1f1b"}}}),
            "schedule: got gpipe; want 1f1b, which mine runs");
  EXPECT_EQ(verdict("tp=2", {{"sp", {1}}}), "sp: got 0 with tp=2; want 1, which mine runs");
}

TEST(EngineLimits, OfZeroDependOnTheOtherDimensions) {
  const Json sharded = {{"zero", {0, 3}}, {"zero_with_pp", {0, 1}}, {"zero_with_cp", {1, 3}}};
  EXPECT_EQ(verdict("zero=3", sharded), "ok");
  EXPECT_EQ(verdict("zero=0", sharded), "ok");
  EXPECT_EQ(verdict("zero=1", sharded),
            "zero: got 1 with pp=1; want 0 or 3, which mine runs there");
  EXPECT_EQ(verdict("pp=2,zero=1", sharded), "ok");
  EXPECT_EQ(verdict("cp=2,zero=0", sharded),
            "zero: got 0 with pp=1 and cp=2; want 3, which mine runs there");
  EXPECT_EQ(verdict("pp=2,cp=2,zero=1", sharded), "ok");
  // Stages 2 and 3 run with pipelines only where the framework says so.
  const EngineLimits sharded_stages = limits({{"zero_with_pp", {1, 3}}});
  ParallelPlan staged = parse_plan_text("pp=2,dp=8,zero=3", "--plan").value().plan;
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  const ModelSpec model = load_model("llama-3-8b").value();
  EXPECT_FALSE(staged.validate(model, cluster, 4096, 64));
  EXPECT_TRUE(staged.validate(model, cluster, 4096, 64, StageCut::kLayers, &sharded_stages));
  staged.zero = 2;
  EXPECT_FALSE(staged.validate(model, cluster, 4096, 64, StageCut::kLayers, &sharded_stages));
  // ZeRO over one rank shards nothing, so no stage is wrong.
  EXPECT_EQ(verdict("tp=8,pp=2,zero=0", {{"zero", {3}}, {"zero_with_pp", {3}}}), "ok");
}

TEST(EngineLimits, MayConcernTheModel) {
  EXPECT_EQ(verdict("tp=16", {{"whole_kv_heads", true}}),
            "tp: got 16; want a divisor of the 8 KV heads, because mine holds each once");
  EXPECT_EQ(verdict("tp=8", {{"whole_kv_heads", true}}), "ok");
  EXPECT_EQ(verdict("pp=2", {{"tied_pipelines", false}}, "llama-3.2-3b"),
            "pp: got 2; want 1, because mine runs no pipelines if embedding and head share their "
            "matrix");
  EXPECT_EQ(verdict("pp=2", {{"tied_pipelines", false}}), "ok");
  EXPECT_EQ(verdict("tp=2", {{"experts_need_sp", true}}, "mixtral-8x7b"),
            "sp: got 0 with tp=2; want 1, because mine trains experts under tp with sp=1 only");
}

TEST(EngineLimits, OfTheCutOfExpertsDependOnEp) {
  const Json spread = {{"etp", {"tp"}}, {"etp_with_ep", {1}}};
  EXPECT_EQ(verdict("tp=4,sp=1,ep=4", spread, "mixtral-8x7b"),
            "etp: got 4 with tp=4 and ep=4; want 1, which mine runs there");
  EXPECT_EQ(verdict("tp=4,sp=1,etp=1", spread, "mixtral-8x7b"),
            "etp: got 1 with tp=4 and ep=1; want tp (4), which mine runs there");
  for (const char* plan : {"tp=4,sp=1,ep=4,etp=1", "tp=4,sp=1", "ep=4", "ep=1"}) {
    EXPECT_EQ(verdict(plan, spread, "mixtral-8x7b"), "ok") << plan;
  }
  EXPECT_EQ(verdict("tp=4,sp=1,ep=2,etp=2", {{"etp_with_ep", {"tp", 1}}}, "mixtral-8x7b"),
            "etp: got 2 with tp=4 and ep=2; want tp (4) or 1, which mine runs there");
  EXPECT_EQ(verdict("tp=4,sp=1,ep=2,etp=2", {{"etp_with_ep", {"other"}}}, "mixtral-8x7b"), "ok");
  EXPECT_EQ(verdict("tp=4,sp=1", {{"etp", {1}}}), "ok") << "a dense model has no experts to cut";
}

TEST(EngineLimits, PrintAndParseBack) {
  const Json json = {{"tp", 8},        {"experts_need_sp", true},     {"tied_pipelines", false},
                     {"zero", {0, 1}}, {"recompute", {"full"}},       {"schedule", {"1f1b"}},
                     {"sp", {1}},      {"precision", {"bf16", "fp8"}}};
  const EngineLimits read = engine_limits_from_json(json, "limits").value();
  EXPECT_EQ(engine_limits_to_json(read), json);
  EXPECT_EQ(engine_limits_from_json(engine_limits_to_json(read), "again").value(), read);
  EXPECT_EQ(engine_limits_to_json(EngineLimits()), Json::object());
}

TEST(EngineLimits, RefuseWhatTheyDoNotKnow) {
  const auto message = [](const Json& json) {
    const Result<EngineLimits> read = engine_limits_from_json(json, "limits");
    return read ? std::string("accepted") : read.error().message;
  };
  EXPECT_EQ(message({{"zero", {4}}}), "limits: zero: got [4]; want a list of 0, 1, 2 or 3");
  EXPECT_EQ(message({{"schedule", "1f1b"}}),
            "limits: schedule: got \"1f1b\"; want a list of gpipe, 1f1b, interleaved or "
            "zero_bubble");
  EXPECT_NE(message({{"shedule", {"1f1b"}}}).find("schedule"), std::string::npos);
  EXPECT_NE(message({{"tp", -1}}).find("tp"), std::string::npos);
}

TEST(EngineLimits, NameThePrecisionsThatAnEngineTrainsIn) {
  const EngineLimits own = limits({{"precision", {"bf16", "fp32"}}});
  EXPECT_TRUE(check_engine_precision(own, Precision::kBf16).has_value());
  EXPECT_EQ(check_engine_precision(own, Precision::kFp16).error().message,
            "--precision: got fp16; want bf16 or fp32, which mine trains in");
}

}  // namespace
}  // namespace copus
