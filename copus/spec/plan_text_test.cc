#include <gtest/gtest.h>

#include <map>
#include <random>

#include "copus/base/text_testing.h"
#include "copus/spec/parallel_plan.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

ParallelPlan parsed_plan(std::string_view text) {
  return parse_plan_text(text, "--plan").value().plan;
}

std::string text_error(std::string_view text) {
  const auto plan = parse_plan_text(text, "--plan");
  return plan ? "parsed" : plan.error().message;
}

std::string json_error(std::string_view text) {
  const auto plan = plan_from_json(parse_json(text, "p.json").value(), "p.json");
  return plan ? "parsed" : plan.error().message;
}

// Returns a random plan, which need not be valid for any model.
ParallelPlan random_plan(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  ParallelPlan plan;
  for (auto* field : {&plan.tp, &plan.cp, &plan.pp, &plan.vp, &plan.dp, &plan.ep, &plan.etp}) {
    *field = pick(1, 3) == 1 ? 1 : pick(1, 9);
  }
  plan = with_settled_etp(plan);
  plan.micro_batch = pick(0, 1) == 1 ? pick(1, 8) : pick(1, kMaxGpus);
  plan.zero = static_cast<int>(pick(0, 3));
  plan.recompute = static_cast<Recompute>(pick(0, 2));
  plan.sp = pick(0, 1) == 1;
  plan.schedule = static_cast<ScheduleKind>(pick(0, 3));
  // Adds runs of equal chunks, some of which are printed as 17x3.
  for (std::int64_t i = pick(0, 4); i > 0; --i) {
    plan.stage_layers.insert(plan.stage_layers.end(), static_cast<std::size_t>(pick(1, 5)),
                             pick(0, 20));
  }
  return plan;
}

TEST(PlanText, UnstatedFieldsKeepTheirDefaults) {
  const PartialPlan partial = parse_plan_text("tp=2,mb=4", "--fix").value();
  ParallelPlan expected;
  expected.tp = 2;
  expected.micro_batch = 4;
  EXPECT_EQ(partial.plan, expected);
  EXPECT_EQ(partial.given, (PlanFields{PlanField::kTp, PlanField::kMicroBatch}));
}

TEST(PlanText, ReadsEveryField) {
  const ParallelPlan plan = parsed_plan(
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
  EXPECT_EQ(parsed_plan("pp=2,vp=2").schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(parsed_plan("schedule=gpipe,vp=2").schedule, ScheduleKind::kGPipe);
  EXPECT_FALSE(parse_plan_text("pp=2,vp=2", "--plan")->has(PlanField::kSchedule));
  EXPECT_EQ(plan_from_json(Json{{"vp", 2}}, "p")->plan.schedule, ScheduleKind::kInterleaved);
}

TEST(PlanText, ExpertsAreCutByTpUnlessTheTextSaysOtherwise) {
  const ParallelPlan uncut = parsed_plan("dp32.tp2.pp16.mb1.ep64.etp1.z1.sp");
  EXPECT_EQ(uncut.expert_tp(), 1);
  EXPECT_EQ(uncut.expert_dp(), 1);
  EXPECT_EQ(short_name(uncut), "dp32.tp2.pp16.mb1.ep64.etp1.z1.sp");
  const ParallelPlan cut = parsed_plan("dp32.tp2.pp16.mb1.ep16.z1.sp");
  EXPECT_EQ(cut.expert_tp(), 2);
  EXPECT_EQ(cut.expert_dp(), 2);
  // Both forms of the default are the same plan, in text and in JSON.
  EXPECT_EQ(parsed_plan("dp32.tp2.pp16.mb1.ep16.etp2.z1.sp"), cut);
  EXPECT_EQ(parsed_plan("tp=2,etp=2"), parsed_plan("tp=2"));
  EXPECT_EQ(plan_from_json(Json{{"tp", 2}, {"etp", 2}}, "p")->plan,
            plan_from_json(Json{{"tp", 2}}, "p")->plan);
  EXPECT_EQ(plan_to_json(cut)["etp"], 2);
  // A pin of etp alone holds under any tp.
  EXPECT_EQ(parse_plan_text("etp=1", "--fix")->plan.etp, 1);
}

TEST(PlanText, ErrorsNameTheOptionTheKeyAndWhatWouldBeRight) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {"", "--plan: got \"\"; want a plan, as tp=2,pp=4, tp2.pp4 or the path of a plan.json"},
      {"tp", "--plan: tp: got \"\"; want an integer"},
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
  for (int i = 0; i < 5000; ++i) {
    const ParallelPlan plan = random_plan(random);
    const Json printed = plan_to_json(plan);
    EXPECT_EQ(plan_from_json(printed, "p")->plan, plan) << printed;
    EXPECT_EQ(plan_from_json(parse_json(printed.dump(), "p").value(), "p")->plan, plan) << printed;
  }
}

TEST(PlanJson, PrintsEveryFieldInOrder) {
  EXPECT_EQ(plan_to_json(parsed_plan("tp=2,pp=2,split=3-1")).dump(),
            R"({"tp":2,"cp":1,"pp":2,"vp":1,"dp":1,"ep":1,"etp":2,"micro_batch":1,"zero":0,)"
            R"("recompute":"none","sp":false,"schedule":"1f1b","stage_layers":[3,1]})");
}

TEST(PlanJson, TakesTheBestPlanOutOfWhatTheProgramPrints) {
  const Json plan = plan_to_json(parsed_plan("tp=2,dp=4"));
  const Json entry = {{"plan", plan}, {"estimate", {{"step_time_s", 1.5}}}};
  const Json output = {{"plans", {entry, {{"plan", {{"tp", 8}}}}}}, {"searched", 2}};
  EXPECT_EQ(plan_from_json(entry, "p")->plan, parsed_plan("tp=2,dp=4"));
  EXPECT_EQ(plan_from_json(output, "p")->plan, parsed_plan("tp=2,dp=4"));
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
  EXPECT_EQ(short_name(parsed_plan("dp=2,pp=4")), "dp2.tp1.pp4.mb1");
  EXPECT_EQ(short_name(parsed_plan("dp=2,pp=2,mb=4")), "dp2.tp1.pp2.mb4");
  EXPECT_EQ(short_name(parsed_plan("tp=2,dp=8,pp=4,cp=2,ep=8,vp=2,zero=1,recompute=full,sp=1")),
            "dp8.tp2.pp4.mb1.cp2.ep8.vp2.z1.rc-full.sp");
  EXPECT_EQ(short_name(parsed_plan("pp=4,schedule=gpipe,recompute=selective,split=8-8-8-4")),
            "dp1.tp1.pp4.mb1.rc-sel.gpipe.split8x3-4");
  EXPECT_EQ(short_name(parsed_plan("pp=2,schedule=zero_bubble")), "dp1.tp1.pp2.mb1.zb");
}

TEST(ShortName, NamesTheScheduleOnlyWhereVirtualStagesDoNotSayIt) {
  EXPECT_EQ(short_name(parsed_plan("pp=2,vp=2")), "dp1.tp1.pp2.mb1.vp2");
  EXPECT_EQ(short_name(parsed_plan("pp=2,vp=2,schedule=1f1b")), "dp1.tp1.pp2.mb1.vp2.1f1b");
  EXPECT_EQ(short_name(parsed_plan("pp=2,schedule=interleaved")), "dp1.tp1.pp2.mb1.interleaved");
}

TEST(ShortName, ParsesBackToTheSamePlan) {
  std::mt19937_64 random(2);
  std::map<std::string, ParallelPlan> by_name;
  for (int i = 0; i < 20'000; ++i) {
    const ParallelPlan plan = random_plan(random);
    const std::string name = short_name(plan);
    const Result<PartialPlan> back = parse_plan_text(name, "--plan");
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(back->plan, plan) << name;
    // No two plans share a name.
    EXPECT_EQ(by_name.try_emplace(name, plan).first->second, plan) << name;
  }
}

TEST(ShortName, LeavesOutWhatItIsAskedTo) {
  EXPECT_EQ(short_name(parsed_plan("dp=2,mb=4,zero=1"), {PlanField::kMicroBatch}),
            "dp2.tp1.pp1.z1");
  EXPECT_EQ(short_name(parsed_plan("dp=2"), PlanFields::all()), "");
}

TEST(ShortName, PinsWhatItNamesAndNoMore) {
  using enum PlanField;
  EXPECT_EQ(parse_plan_text("tp2.split8x3-4", "--fix")->given, (PlanFields{kTp, kStageLayers}));
  EXPECT_EQ(parse_plan_text("dp16.tp2.pp8.z1", "--fix")->given, (PlanFields{kDp, kTp, kPp, kZero}));
  // A field that is named with its default value is pinned too.
  const PartialPlan defaults = parse_plan_text("z0.cp1.rc-none.sp0.1f1b", "--fix").value();
  EXPECT_EQ(defaults.given, (PlanFields{kZero, kCp, kRecompute, kSp, kSchedule}));
  EXPECT_EQ(defaults.plan, ParallelPlan());
}

TEST(ShortName, OfAWholePlanPinsAllOfIt) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 5000; ++i) {
    const ParallelPlan plan = random_plan(random);
    const PartialPlan pins = parse_plan_text(short_name(plan), "--fix").value();
    EXPECT_EQ(pins.given, PlanFields::all()) << short_name(plan);
    EXPECT_EQ(pins.plan, plan) << short_name(plan);
    // The pins contradict every other plan.
    const ParallelPlan other = random_plan(random);
    EXPECT_EQ(pins.contradicted_by(other).has_value(), plan != other) << short_name(other);
  }
  // They also contradict a plan that differs only in a field that the text does not name.
  const PartialPlan pins = parse_plan_text("dp2.tp2.pp2.mb1", "--fix").value();
  for (const char* more : {"cp=2", "ep=2", "vp=2", "zero=1", "recompute=full", "sp=1", "split=3-1",
                           "schedule=gpipe"}) {
    const ParallelPlan other = parsed_plan(fmt::format("dp=2,tp=2,pp=2,mb=1,{}", more));
    EXPECT_TRUE(pins.contradicted_by(other)) << more;
  }
  // The form of pairs pins only the fields that it names.
  EXPECT_EQ(parse_plan_text("dp=2,tp=2,pp=2,mb=1", "--fix")->given.list().size(), 4U);
}

TEST(PlanText, BothFormsSayTheSame) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 5000; ++i) {
    const ParallelPlan plan = random_plan(random);
    std::string pairs;
    for (const PlanField field : kPlanFields) {
      const std::string_view key = i % 2 == 0 ? name_of(field) : short_name_of(field);
      pairs += fmt::format("{}{}={}", pairs.empty() ? "" : ",", key, value_text(plan, field));
    }
    const Result<PartialPlan> back = parse_plan_text(pairs, "--plan");
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(back->plan, plan) << pairs;
    EXPECT_EQ(back->given, PlanFields::all());
  }
}

TEST(ShortName, ThatNobodyWroteIsRefusedWithWhatWouldBeRight) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {"dp", "--plan: dp: got \"\"; want an integer"},
      {"dp2.tp1.pp2.mb", "--plan: micro_batch: got \"\""},
      {"dp2.tp1.pp0.mb1", "--plan: pp: got \"0\""},
      {"dp2 at batch 4", "--plan: dp: got \"2 at batch 4\""},
      {"dp-1.tp1.pp1.mb1", "--plan: got \"dp-1\" in \"dp-1.tp1.pp1.mb1\"; want dp"},
      {"foo3",
       "--plan: got \"foo3\"; want a plan, as tp=2,pp=4, tp2.pp4 or the path of a plan.json"},
      {"dp2.ppp4", "--plan: got \"ppp4\" in \"dp2.ppp4\"; want pp"},
      {"dp2.rc-ful", "want rc-full"},
      {"dp2.tp2.dp4", "--plan: got dp twice"},
      {"rc-full.rc-sel", "--plan: got recompute twice"},
      {"dp2.split8x", "split, after x: got \"\""},
      {"tp=2.pp=4", "which mixes two forms; want one of them, as tp=2,pp=4 or tp2.pp4"},
      {"tp=2,pp4", "which mixes two forms"},
      {"tp2,pp4", "which mixes two forms"},
      {"dp2.tp2,pp=4", "which mixes two forms"},
      {"tp=1.5", "--plan: tp: got \"1.5\"; want an integer"},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(contains(text_error(c.text), c.part)) << c.text << " -> " << text_error(c.text);
  }
}

TEST(PlanField, IsFoundByBothOfItsNames) {
  for (const PlanField field : kPlanFields) {
    EXPECT_EQ(find_plan_field(name_of(field)), field);
    EXPECT_EQ(find_plan_field(short_name_of(field)), field);
  }
  EXPECT_EQ(find_plan_field(""), std::nullopt);
}

TEST(PlanField, IsToldBesideTheMessageOfAnError) {
  EXPECT_EQ(parse_plan_text("tp=0", "--plan").error().field, "tp");
  EXPECT_EQ(parse_plan_text("dp2.mbx", "--plan").error().field, "--plan");  // not a plan's field
  EXPECT_EQ(parse_plan_text("dp2.mb0", "--plan").error().field, "micro_batch");
  EXPECT_EQ(plan_from_json(Json{{"zero", 7}}, "p").error().field, "zero");
}

TEST(PlanFields, AreASet) {
  using enum PlanField;
  PlanFields fields = {kPp, kTp};
  EXPECT_EQ(fields.list(), (std::vector<PlanField>{kTp, kPp}));
  fields.add(kZero);
  fields.remove(kTp);
  EXPECT_EQ(fields, (PlanFields{kPp, kZero}));
  EXPECT_TRUE(fields.has_all({kPp}));
  EXPECT_FALSE(fields.has_all({kPp, kTp}));
  EXPECT_TRUE(PlanFields::all().has_all(fields));
  EXPECT_EQ(PlanFields::all().list().size(), kPlanFieldCount);
}

TEST(PartialPlan, KeepsThePartsThatItIsAskedFor) {
  const PartialPlan pins = parse_plan_text("tp=2,pp=4,vp=2,zero=1", "--fix").value();
  const PartialPlan part = pins.only({PlanField::kPp, PlanField::kVp});
  EXPECT_EQ(part.plan, parsed_plan("pp=4,vp=2"));
  EXPECT_EQ(pins.only({PlanField::kTp}).plan, parsed_plan("tp=2"));
}

TEST(PartialPlan, NamesTheFieldThatAPlanHasOtherwise) {
  const PartialPlan pins = parse_plan_text("tp=2,zero=1", "--fix").value();
  ParallelPlan plan = parse_plan_text("tp=2,pp=4,zero=1,micro_batch=8", "--plan").value().plan;
  EXPECT_EQ(pins.contradicted_by(plan), std::nullopt);
  plan.zero = 0;
  EXPECT_EQ(pins.contradicted_by(plan), PlanField::kZero);
  plan.tp = 4;
  EXPECT_EQ(pins.contradicted_by(plan), PlanField::kTp);
  const PartialPlan split = parse_plan_text("pp=2,split=3-1", "--fix").value();
  EXPECT_EQ(split.contradicted_by(parsed_plan("pp=2,split=2-2")), PlanField::kStageLayers);
  EXPECT_EQ(split.contradicted_by(parsed_plan("pp=2")), PlanField::kStageLayers);
  // A list of equal stages equals a plan without a split.
  const PartialPlan equal = parse_plan_text("pp=2,split=2-2", "--fix").value();
  EXPECT_EQ(equal.contradicted_by(parsed_plan("pp=2")), std::nullopt);
}

}  // namespace
}  // namespace copus
