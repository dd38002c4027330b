#include "copus/spec/parallel_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "copus/base/text_testing.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// A small Llama: 24 layers, 16 heads over 4 KV heads.
ModelSpec llama() {
  ModelSpec model;
  model.name = "llama";
  model.layers = 24;
  model.hidden = 1024;
  model.ffn = 2816;
  model.heads = 16;
  model.kv_heads = 4;
  model.head_dim = 64;
  model.vocab = 32000;
  model.max_positions = 4096;
  return model;
}

ModelSpec mixtral() {
  ModelSpec model = llama();
  model.name = "mixtral";
  model.moe.experts = 8;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn = 704;
  return model;
}

ParallelPlan plan_of(std::string_view text) { return parse_plan_text(text, "--plan").value().plan; }

// What validate() says of `plan` on as many GPUs as it asks for; "ok" when it is valid.
std::string verdict(const ParallelPlan& plan, const ModelSpec& model = llama(),
                    std::int64_t global_batch = 64, std::int64_t seq_len = 2048) {
  ClusterSpec cluster = load_cluster("1x1xB200").value();
  cluster.gpus_per_node = plan.gpus();
  cluster.name = "test";
  const auto valid = plan.validate(model, cluster, seq_len, global_batch);
  return valid ? "ok" : valid.error().message;
}

std::string verdict(std::string_view text, const ModelSpec& model = llama(),
                    std::int64_t global_batch = 64, std::int64_t seq_len = 2048) {
  return verdict(plan_of(text), model, global_batch, seq_len);
}

std::string text_error(std::string_view text) {
  const auto plan = parse_plan_text(text, "--plan");
  return plan ? "parsed" : plan.error().message;
}

std::string json_error(std::string_view text) {
  const auto plan = plan_from_json(parse_json(text, "p.json").value(), "p.json");
  return plan ? "parsed" : plan.error().message;
}

// Any plan at all, valid for no model in particular.
ParallelPlan random_plan(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  ParallelPlan plan;
  for (auto* field : {&plan.tp, &plan.cp, &plan.pp, &plan.vp, &plan.dp, &plan.ep}) {
    *field = pick(1, 9);
  }
  plan.micro_batch = pick(1, kMaxGpus);
  plan.zero = static_cast<int>(pick(0, 3));
  plan.recompute = static_cast<Recompute>(pick(0, 2));
  plan.sp = pick(0, 1) == 1;
  plan.schedule = static_cast<ScheduleKind>(pick(0, 3));
  for (std::int64_t i = pick(0, 4); i > 0; --i) plan.stage_layers.push_back(pick(0, 99));
  return plan;
}

TEST(PlanText, UnstatedFieldsKeepTheirDefaults) {
  const PartialPlan partial = parse_plan_text("tp=2,mb=4", "--fix").value();
  ParallelPlan expected;
  expected.tp = 2;
  expected.micro_batch = 4;
  EXPECT_EQ(partial.plan, expected);
  EXPECT_TRUE(partial.has("tp"));
  EXPECT_TRUE(partial.has("micro_batch"));
  EXPECT_TRUE(partial.has("mb"));
  EXPECT_FALSE(partial.has("pp"));
}

TEST(PlanText, ReadsEveryField) {
  const ParallelPlan plan = plan_of(
      "tp=2, pp=4,dp=3,cp=5,ep=6,vp=2,micro_batch=7,zero=1,recompute=selective,sp=true,"
      "schedule=interleaved,split=1-2-3-4-5-6-7-8");
  EXPECT_EQ(plan.tp, 2);
  EXPECT_EQ(plan.pp, 4);
  EXPECT_EQ(plan.dp, 3);
  EXPECT_EQ(plan.cp, 5);
  EXPECT_EQ(plan.ep, 6);
  EXPECT_EQ(plan.vp, 2);
  EXPECT_EQ(plan.micro_batch, 7);
  EXPECT_EQ(plan.zero, 1);
  EXPECT_EQ(plan.recompute, Recompute::kSelective);
  EXPECT_TRUE(plan.sp);
  EXPECT_EQ(plan.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(plan.stage_layers, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(PlanText, VirtualStagesImplyInterleavingUnlessTheScheduleIsStated) {
  EXPECT_EQ(plan_of("pp=2,vp=2").schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(plan_of("schedule=gpipe,vp=2").schedule, ScheduleKind::kGPipe);
  EXPECT_FALSE(parse_plan_text("pp=2,vp=2", "--plan")->has("schedule"));
  EXPECT_EQ(plan_from_json(Json{{"vp", 2}}, "p")->plan.schedule, ScheduleKind::kInterleaved);
}

TEST(PlanText, ErrorsNameTheOptionTheKeyAndWhatWouldBeRight) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {"", "--plan: got \"\"; want KEY=VALUE"},
      {"tp", "--plan: got \"tp\"; want KEY=VALUE"},
      {"tp=2,", "--plan: got \"\"; want KEY=VALUE"},
      {"tp=", "--plan: tp: got \"\""},
      {"tp=0", "--plan: tp: got \"0\""},
      {"tp=-1", "--plan: tp: got \"-1\""},
      {"tp=99999999999999999999", "--plan: tp: got"},
      {"tp=1e3", "--plan: tp: got"},
      {"zero=4", "--plan: zero: got \"4\""},
      {"tp=2,tp=2", "--plan: got tp twice"},
      {"mb=2,micro_batch=2", "--plan: got micro_batch twice"},
      {"sp=2", "--plan: sp: got \"2\"; want 0 or 1"},
      {"recompute=all", "--plan: recompute: got \"all\"; want none, selective or full"},
      {"schedule=1f1", "want gpipe, 1f1b, interleaved or zero_bubble"},
      {"split=8-8-", "--plan: split: got \"\""},
      {"micro_bach=2", "--plan: got the key \"micro_bach\"; want micro_batch"},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(contains(text_error(c.text), c.part)) << c.text << " -> " << text_error(c.text);
  }
}

TEST(PlanJson, WhatItPrintsParsesBackTheSame) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    const ParallelPlan plan = random_plan(random);
    const Json printed = plan_to_json(plan);
    EXPECT_EQ(plan_from_json(printed, "p")->plan, plan) << printed;
    EXPECT_EQ(plan_from_json(parse_json(printed.dump(), "p").value(), "p")->plan, plan) << printed;
  }
}

TEST(PlanJson, PrintsEveryFieldInOrder) {
  EXPECT_EQ(plan_to_json(plan_of("tp=2,pp=2,split=3-1")).dump(),
            R"({"tp":2,"cp":1,"pp":2,"vp":1,"dp":1,"ep":1,"micro_batch":1,"zero":0,)"
            R"("recompute":"none","sp":false,"schedule":"1f1b","stage_layers":[3,1]})");
}

TEST(PlanJson, TakesTheBestPlanOutOfWhatTheProgramPrints) {
  const Json plan = plan_to_json(plan_of("tp=2,dp=4"));
  const Json entry = {{"plan", plan}, {"estimate", {{"step_time_s", 1.5}}}};
  const Json output = {{"plans", {entry, {{"plan", {{"tp", 8}}}}}}, {"searched", 2}};
  EXPECT_EQ(plan_from_json(entry, "p")->plan, plan_of("tp=2,dp=4"));
  EXPECT_EQ(plan_from_json(output, "p")->plan, plan_of("tp=2,dp=4"));
}

TEST(PlanJson, ErrorsNameTheFileTheFieldAndWhatWouldBeRight) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {"[1]", "p.json: got"},
      {R"({"plans": []})", "p.json: plans: got no entry"},
      {R"({"plan": 3})", "p.json: plan: got 3"},
      {R"({"tp": 0})", "p.json: tp: got 0"},
      {R"({"tp": 2.5})", "p.json: tp: got 2.5"},
      {R"({"mbs": 2})", "p.json: mbs: unknown field"},
      {R"({"sp": "yes"})", "p.json: sp: got \"yes\""},
      {R"({"recompute": "some"})", "p.json: recompute: got \"some\"; want none, selective or full"},
      {R"({"stage_layers": 5})", "p.json: stage_layers: got number; want an array"},
      {R"({"stage_layers": [1, -2]})", "p.json: stage_layers: got -2 at entry 1; want 0 to"},
      {R"({"stage_layers": [18446744073709551615]})",
       "p.json: stage_layers: got 18446744073709551615"},
      {R"({"stage_layers": ["x"]})", "p.json: stage_layers: got \"x\" at entry 0"},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(contains(json_error(c.text), c.part)) << c.text << " -> " << json_error(c.text);
  }
}

TEST(ShortName, HasFourFieldsAlwaysAndTheOthersOnlyWhenSet) {
  EXPECT_EQ(short_name(plan_of("dp=2,pp=4")), "dp2.tp1.pp4.mb1");
  EXPECT_EQ(short_name(plan_of("dp=2,pp=2,mb=4")), "dp2.tp1.pp2.mb4");
  EXPECT_EQ(short_name(plan_of("tp=2,dp=8,pp=4,cp=2,ep=8,vp=2,zero=1,recompute=full,sp=1")),
            "dp8.tp2.pp4.mb1.cp2.ep8.vp2.z1.rc-full.sp");
  EXPECT_EQ(short_name(plan_of("pp=4,schedule=gpipe,recompute=selective,split=8-8-8-4")),
            "dp1.tp1.pp4.mb1.rc-sel.gpipe.split8x3-4");
  EXPECT_EQ(short_name(plan_of("pp=2,schedule=zero_bubble")), "dp1.tp1.pp2.mb1.zb");
}

TEST(ShortName, ThatNobodyWroteIsRefused) {
  for (const char* name :
       {"", "dp", "dp2.tp1.pp2.mb", "dp2 at batch 4", "dp-1.tp1.pp1.mb1", "foo3"}) {
    EXPECT_FALSE(parse_short_name(name).has_value()) << name;
  }
}

TEST(ShortName, TellsAnyTwoDistinctPlansApart) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    ParallelPlan a = random_plan(random);
    ParallelPlan b = random_plan(random);
    // Interleaving is said by vp, and valid only with it.
    for (ParallelPlan* p : {&a, &b}) {
      if (p->vp > 1) p->schedule = ScheduleKind::kInterleaved;
      if (p->vp == 1 && p->schedule == ScheduleKind::kInterleaved) {
        p->schedule = ScheduleKind::k1F1B;
      }
    }
    EXPECT_EQ(a == b, short_name(a) == short_name(b));
    const Result<ParallelPlan> back = parse_short_name(short_name(a));
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(short_name(*back), short_name(a));
  }
}

TEST(Validate, AcceptsPlansThatEnginesRun) {
  for (const char* text :
       {"tp=1", "dp=8,zero=3", "dp=8,zero=2,recompute=full", "tp=4,sp=1,dp=2", "tp=16,sp=1",
        "pp=4,dp=2,zero=1", "pp=4,vp=3", "pp=2,schedule=gpipe", "pp=2,schedule=zero_bubble",
        "cp=4,dp=2", "pp=2,split=13-11", "pp=4,split=0-12-12-0", "pp=5,split=5-5-5-5-4",
        "tp=2,cp=2,pp=2,dp=2,micro_batch=8,sp=1"}) {
    EXPECT_EQ(verdict(text), "ok") << text;
  }
  EXPECT_EQ(verdict("dp=8,ep=4", mixtral()), "ok");
  EXPECT_EQ(verdict("dp=4,cp=2,ep=8", mixtral()), "ok");
}

TEST(Validate, RefusesWithTheFieldItsValueAndWhatWouldBeRight) {
  struct Case {
    std::string text, message;
  };
  const Case cases[] = {
      {"tp=3",
       "tp: got 3, which does not divide 16 attention heads; want a divisor (1, 2, 4, 8, 16)"},
      {"sp=1", "sp: got 1 with tp=1; want sp=0, or tp above 1"},
      {"pp=5",
       "pp: got 5, which does not divide 24 layers; want a divisor (1, 2, 3, 4, 6, 8, …) or "
       "split=5-5-5-5-4"},
      {"pp=30", "pp: got 30, more than 24 layers; want a divisor (1, 2, 3, 4, 6, 8, …)"},
      {"pp=4,vp=5",
       "pp*vp: got 4*5, which does not divide 24 layers; want a divisor (1, 2, 3, 4, 6, 8, …) or a "
       "split"},
      {"pp=2,split=12", "stage_layers: got 1 entries; want pp*vp = 2*1 = 2"},
      {"pp=2,split=12-11", "stage_layers: got 23 layers in all; want 24"},
      {"pp=3,split=12-0-12", "stage_layers: got 0 layers in chunk 1; want 1 to 24"},
      {"vp=2", "vp: got 2 with pp=1; want 1, or pp above 1"},
      {"pp=4,vp=2,schedule=1f1b", "schedule: got 1f1b with vp=2; want interleaved, or vp=1"},
      {"pp=4,vp=2,schedule=zero_bubble",
       "schedule: got zero_bubble with vp=2; want interleaved, or vp=1"},
      {"pp=4,schedule=interleaved",
       "schedule: got interleaved with vp=1; want vp of 2 or more, or 1f1b"},
      {"pp=8,vp=3,dp=16",
       "vp: got 3 with 4 micro-batches; want a multiple of pp=8 micro-batches, or vp=1"},
      {"pp=2,zero=2",
       "zero: got 2 with pp=2; want 0 or 1, because gradients would be reduced after every "
       "micro-batch"},
      {"dp=2,ep=2", "ep: got 2; want 1, because llama has no experts"},
      {"dp=2,tp=2,ep=2", "ep: got 2; want 1, because llama has no experts"},
      {"dp=3", "global_batch: got 64; want a multiple of dp*micro_batch = 3*1 (63 or 66)"},
      {"dp=4,mb=3",
       "global_batch: got 64; want a multiple of dp*micro_batch = 4*3 (60 or 72), or a micro_batch "
       "that divides 16 (1, 2, 4, 8, 16)"},
      {"dp=128", "global_batch: got 64; want a multiple of dp*micro_batch = 128*1 (128)"},
  };
  for (const Case& c : cases) EXPECT_EQ(verdict(c.text), c.message) << c.text;
}

TEST(Validate, CountsMustMatchTheClusterAndMayNotOverflow) {
  const ClusterSpec cluster = load_cluster("1x8xB200").value();
  const auto error = [&](std::string_view text) {
    return plan_of(text).validate(llama(), cluster, 2048, 64).error().message;
  };
  EXPECT_EQ(error("tp=2,pp=4,dp=2"),
            "plan: tp*cp*pp*dp = 16 (2*1*4*2); want 8, the GPUs of cluster 1x8xB200");
  EXPECT_TRUE(contains(error("tp=1000000,pp=1024,dp=1000000,cp=1000000"), "want 8"));
  ParallelPlan plan;
  plan.dp = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(contains(plan.validate(llama(), cluster, 2048, 64).error().message, "dp: got 9223"));
  plan.dp = 0;
  EXPECT_TRUE(contains(plan.validate(llama(), cluster, 2048, 64).error().message, "dp: got 0"));
}

TEST(Validate, BatchAndSequenceLengthHaveRanges) {
  EXPECT_TRUE(contains(verdict("tp=1", llama(), 0), "global_batch: got 0"));
  EXPECT_TRUE(contains(verdict("tp=1", llama(), -5), "global_batch: got -5"));
  EXPECT_TRUE(contains(verdict("tp=1", llama(), 64, 0), "seq_len: got 0"));
}

TEST(Validate, KvHeadsAreReplicatedWhenThereAreFewerThanRanks) {
  ModelSpec model = llama();
  model.heads = 24;
  model.kv_heads = 4;
  model.hidden = 1536;
  model.ffn = 4608;
  EXPECT_EQ(verdict("tp=2", model), "ok");
  EXPECT_EQ(verdict("tp=8", model), "ok");
  EXPECT_EQ(verdict("tp=6", model), "tp: got 6; want a divisor or a multiple of the 4 KV heads");
}

TEST(Validate, TensorParallelismDividesTheWidthsThatExist) {
  ModelSpec model = llama();
  model.ffn = 2815;
  EXPECT_TRUE(contains(verdict("tp=2", model), "which does not divide 2815 MLP units"));
  ModelSpec moe = mixtral();
  moe.ffn = 2815;  // unused: every layer has experts
  EXPECT_EQ(verdict("tp=2", moe), "ok");
  moe.moe.first_dense_layers = 1;
  EXPECT_TRUE(contains(verdict("tp=2", moe), "2815 MLP units"));
  moe = mixtral();
  moe.moe.expert_ffn = 705;
  EXPECT_TRUE(contains(verdict("tp=2", moe), "705 units of an expert"));
}

TEST(Validate, ContextParallelismNeedsTwoPiecesPerRank) {
  EXPECT_EQ(verdict("cp=4", llama(), 64, 2048), "ok");
  EXPECT_TRUE(contains(verdict("cp=4", llama(), 64, 2052), "cp: got 4 at sequence length 2052"));
  EXPECT_EQ(verdict("tp=4", llama(), 64, 2050), "ok");
  EXPECT_TRUE(contains(verdict("tp=4,sp=1", llama(), 64, 2050), "want a multiple of cp*tp = 1*4"));
}

TEST(Validate, ExpertParallelismDividesExpertsAndReplicas) {
  EXPECT_TRUE(contains(verdict("dp=16,ep=16", mixtral()), "does not divide 8 experts"));
  EXPECT_TRUE(contains(verdict("dp=2,ep=4", mixtral()), "does not divide 2 ranks of dp*cp"));
}

TEST(ChunkLayers, AreEqualUnlessSplit) {
  EXPECT_EQ(plan_of("pp=4,vp=2").chunk_layers(5, llama()), 3);
  EXPECT_EQ(plan_of("pp=3,split=9-8-7").chunk_layers(2, llama()), 7);
}

TEST(PartialPlan, NamesTheFieldThatAPlanHasOtherwise) {
  const PartialPlan pins = parse_plan_text("tp=2,zero=1", "--fix").value();
  ParallelPlan plan = parse_plan_text("tp=2,pp=4,zero=1,micro_batch=8", "--plan").value().plan;
  EXPECT_EQ(pins.contradicted_by(plan), "");
  plan.zero = 0;
  EXPECT_EQ(pins.contradicted_by(plan), "zero");
  plan.tp = 4;
  EXPECT_EQ(pins.contradicted_by(plan), "tp");
  const PartialPlan split = parse_plan_text("pp=2,split=3-1", "--fix").value();
  EXPECT_EQ(split.contradicted_by(parse_plan_text("pp=2,split=2-2", "--plan").value().plan),
            "stage_layers");
}

TEST(ParallelPlan, NeedsNoDivisorOfTheLayersWhereStagesAreCutByWork) {
  ModelSpec model = llama();
  const ClusterSpec cluster = load_cluster("1x5xH100-80GB-SXM").value();
  ParallelPlan plan;
  plan.pp = 5;
  EXPECT_FALSE(plan.validate(model, cluster, 128, 5).has_value());
  EXPECT_TRUE(plan.validate(model, cluster, 128, 5, StageCut::kWork).has_value());
  model.layers = 4;
  const Result<void> thin = plan.validate(model, cluster, 128, 5, StageCut::kWork);
  ASSERT_FALSE(thin.has_value());
  EXPECT_EQ(thin.error().message, "pp: got 5, more than 4 layers; want at most so many");
}

}  // namespace
}  // namespace copus
