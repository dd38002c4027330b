#include "copus/cost/framework.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "copus/cost/memory.h"

namespace copus {
namespace {

ModelSpec llama(std::int64_t layers, std::int64_t hidden, std::int64_t ffn) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = hidden;
  model.ffn = ffn;
  model.heads = model.kv_heads = 32;
  model.head_dim = hidden / 32;
  model.vocab = 131'072;
  return model;
}

TEST(FrameworkProfiles, OfTheCatalogAllLoadAndPrintBack) {
  const std::vector<std::string> names = framework_names();
  ASSERT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    const Result<FrameworkProfile> profile = framework_profile(name);
    ASSERT_TRUE(profile.has_value()) << profile.error().message;
    EXPECT_EQ(profile->name, name);
    const Json printed = framework_to_json(*profile);
    const Result<FrameworkProfile> again = framework_from_json(printed, "again");
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(framework_to_json(*again), printed) << name;
  }
}

TEST(FrameworkProfiles, HaveTheOptionsOfTheFrameworkThatTheyAreAnalogousTo) {
  int analogies = 0;
  for (const std::string& name : framework_names()) {
    const FrameworkProfile profile = framework_profile(name).value();
    if (profile.analogy.empty()) continue;
    ++analogies;
    const FrameworkProfile nearest = framework_profile(profile.analogy).value();
    EXPECT_TRUE(nearest.analogy.empty()) << name;
    EXPECT_EQ(options_to_json(profile.options), options_to_json(nearest.options)) << name;
  }
  EXPECT_GE(analogies, 2);
  const Json own = {{"analogy", "fsdp"}, {"options", {{"tp_skew_us", 7}}}};
  EXPECT_EQ(framework_from_json(own, "mine.json")->options.tp_skew, microseconds(7));
  EXPECT_EQ(framework_from_json(own, "mine.json")->options.elementwise,
            framework_profile("fsdp")->options.elementwise);
}

TEST(FrameworkProfiles, StateLimitsForEveryFrameworkThatUsersPlanFor) {
  for (const char* name : {"megatron", "nemo", "torchtitan", "fsdp2", "deepspeed"}) {
    const FrameworkProfile profile = framework_profile(name).value();
    ASSERT_TRUE(profile.limits.has_value()) << name;
    EXPECT_EQ(profile.limits->engine, name);
    EXPECT_FALSE(*profile.limits == EngineLimits{.engine = name}) << name;
  }
}

TEST(FrameworkProfiles, MegatronIsTheDefaultAndDiffersFromTheOptionsDefaultsInFive) {
  CostOptions megatron = framework_profile(kDefaultFramework)->options;
  EXPECT_GT(megatron.tp_overlap_te, 0);
  megatron.tp_overlap_te = CostOptions().tp_overlap_te;
  megatron.straggler = CostOptions().straggler;
  megatron.quantised_gather_bytes = CostOptions().quantised_gather_bytes;
  megatron.quantised_input_bytes = CostOptions().quantised_input_bytes;
  EXPECT_EQ(megatron.expert_dispatch, ExpertDispatch::kDeduplicated);
  megatron.expert_dispatch = CostOptions().expert_dispatch;
  EXPECT_EQ(options_to_json(megatron), options_to_json(CostOptions()));
}

TEST(FrameworkProfiles, EarlyRunsDifferInWhatTheProfileStates) {
  const Json json = {{"options", {{"elementwise", 2}}}, {"early_gpt", {{"attention", "unfused"}}}};
  const FrameworkProfile profile = framework_from_json(json, "mine.json").value();
  ASSERT_TRUE(profile.early_gpt);
  EXPECT_EQ(profile.early_gpt->attention, AttentionKernel::kUnfused);
  EXPECT_EQ(profile.early_gpt->elementwise, 2) << "the rest is as in the options";
  EXPECT_EQ(framework_to_json(profile)["early_gpt"], Json({{"attention", "unfused"}}));
  EXPECT_FALSE(framework_from_json({{"options", Json::object()}}, "mine.json")->early_gpt);
}

TEST(FrameworkProfiles, RefuseWhatTheyDoNotKnow) {
  const auto message = [](const Json& json) {
    const Result<FrameworkProfile> profile = framework_from_json(json, "mine.json");
    return profile ? std::string("accepted") : profile.error().message;
  };
  EXPECT_EQ(message({{"stage_balance", "fair"}}),
            "mine.json: stage_balance: got fair; want even or cost");
  EXPECT_NE(message({{"options", {{"elementwize", 2}}}}).find("elementwise"), std::string::npos);
  EXPECT_NE(message({{"options", {{"elementwise", 0.5}}}}).find("got 0.5; want a number from 1"),
            std::string::npos);
  EXPECT_NE(message({{"option", Json::object()}}).find("option"), std::string::npos);
  EXPECT_NE(message({{"options", 3}}).find("want an object"), std::string::npos);
  EXPECT_NE(message({{"options", {{"tp_skew_us", "1,elementwise=9"}}}}).find("want one value"),
            std::string::npos);
  EXPECT_NE(message({{"network", {{"nodes", 3}}}}).find("want network_ keys"), std::string::npos);
  EXPECT_NE(message({{"network", {{"network_efficiency", 3}}}}).find("network_efficiency"),
            std::string::npos);
  EXPECT_EQ(message({{"network", {{"network_latency_us", 40}}}}), "accepted");
  EXPECT_NE(message({{"limits", {{"zero", {7}}}}}).find("limits: zero"), std::string::npos);
  EXPECT_NE(message({{"analogy", "megatorn"}}).find("megatron"), std::string::npos);
  EXPECT_NE(message({{"analogy", "deepspeed"}}).find("runs of its own"), std::string::npos);
  const Json rule = {{"text", "tp first"}, {"zero", {1}}, {"grow", {"dp"}}};
  EXPECT_NE(message({{"usual_rule", rule}}).find("grow"), std::string::npos);
  const Result<FrameworkProfile> unknown = framework_profile("megatorn");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("megatron"), std::string::npos);
}

TEST(StageLayers, ByCostGiveEveryLayerOnceAndFewerBeforeTheHead) {
  for (const std::int64_t chunks : {2, 3, 4, 8, 16}) {
    const ModelSpec model = llama(16, 2048, 8192);
    const std::vector<std::int64_t> layers = stage_layers(model, chunks, StageBalance::kCost);
    ASSERT_EQ(layers.size(), static_cast<std::size_t>(chunks));
    EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), 16) << chunks;
    EXPECT_LE(layers.back(), layers.front());
  }
  // The head has the parameters of four layers, so the total is that of 20 layers.
  EXPECT_EQ(stage_layers(llama(16, 2048, 8192), 2, StageBalance::kCost),
            (std::vector<std::int64_t>{10, 6}));
  EXPECT_EQ(stage_layers(llama(16, 2048, 8192), 4, StageBalance::kCost),
            (std::vector<std::int64_t>{5, 5, 5, 1}));
}

TEST(StageLayers, AreEvenUnlessTheyDoNotDivide) {
  EXPECT_TRUE(stage_layers(llama(16, 2048, 8192), 4, StageBalance::kEven).empty());
  const std::vector<std::int64_t> layers =
      stage_layers(llama(22, 2048, 8192), 8, StageBalance::kEven);
  ASSERT_EQ(layers.size(), 8u);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), 22);
  EXPECT_LE(*std::max_element(layers.begin(), layers.end()) -
                *std::min_element(layers.begin(), layers.end()),
            1);
}

// Weights, gradients and two moments have 4 bytes each. In BF16 weights have 2, and a master copy
// has 4.
TEST(EngineCostOptions, CountTheStateThatTheEngineHolds) {
  const RankParams params{.dense = 1e9};
  const auto bytes = [&](Precision precision) {
    return state_memory(engine_cost_options(true, precision), ParallelPlan{}, params, 0).total().v;
  };
  EXPECT_DOUBLE_EQ(bytes(Precision::kFp32), 16e9);
  EXPECT_DOUBLE_EQ(bytes(Precision::kBf16), 18e9);
}

}  // namespace
}  // namespace copus
