#include "copus/events/event_json.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "copus/spec/catalog.h"

namespace copus {
namespace {

std::string text_of(const Event& event) { return event_to_json({Seconds(0.5), event}).dump(); }

Result<std::optional<TimedEvent>> parse_text(const std::string& text) {
  const Result<Json> json = parse_json(text, "events.jsonl:7");
  if (!json) return json.error();
  return parse_event(*json, "events.jsonl:7");
}

std::string error_of(const std::string& text) {
  const auto event = parse_text(text);
  return event ? "" : event.error().message;
}

// Return the event's text with the key's value replaced, or without the key.
std::string changed(const Event& event, const std::string& key, const Json& value) {
  Json json = event_to_json({Seconds(0.5), event});
  EXPECT_TRUE(json.contains(key));
  json[key] = value;
  return json.dump();
}
std::string without(const Event& event, const std::string& key) {
  Json json = event_to_json({Seconds(0.5), event});
  EXPECT_EQ(json.erase(key), 1U);
  return json.dump();
}

ParallelPlan plan_of(const char* name) { return parse_plan_text(name, "plan")->plan; }

// One event of each kind, with a value in every field.

StartEvent a_start() {
  StartEvent e;
  e.model = "tiny";
  e.parameters = 1'002'624;
  e.plan = plan_of("dp2.tp1.pp2.mb4");
  e.ranks = 4;
  e.device = DeviceKind::kCpu;
  e.precision = Precision::kFp32;
  e.seq_len = 64;
  e.global_batch = 8;
  e.data_tokens = 8'388'608;
  e.peak = teraflops(0.25);
  e.adapt = Adapt::kFull;
  return e;
}

RestartEvent a_restart() {
  RestartEvent e;
  e.step = 20;
  e.samples = 160;
  e.from = "run/checkpoints/step-20";
  e.plan = plan_of("dp4.tp1.pp1.mb2.z1");
  e.global_batch = 8;
  e.ranks = 4;
  e.why = "--resume";
  e.skipped = "run/checkpoints/step-30: torn";
  e.options = {{"lr", "0.001", "0.0003"}, {"steps", "20", "40"}, {"until-loss", "", "3"}};
  return e;
}

StepEvent a_step() {
  StepEvent e;
  e.step = 3;
  e.samples = 24;
  e.tokens = 1536;
  e.loss = 5.5;
  e.grad_norm = 1.25;
  e.lr = 0.001;
  e.global_batch = 8;
  e.plan = plan_of("dp1.tp2.pp2.mb4.vp2.sp");
  e.step_time = Seconds(0.25);
  e.tokens_per_s = 2048;
  e.mfu = 0.375;
  e.gns = 12.5;
  e.gns_low = 10;
  e.gns_high = 20;
  e.g2 = -0.5;
  e.s = 3;
  e.gns_scales = 11;
  e.norms = {{2, 1.5, 4}, {8, 0.75, 1}};
  e.scale_norms = {{1, 0.5, 8}};
  e.critical_batch = 25;
  e.goodput = 16;
  e.data_hash = 0x00ab00cd00ef0012U;
  e.tp_wait = Seconds(0.125);
  e.pp_wait = Seconds(0.0625);
  e.dp_wait = Seconds(0.5);
  e.sync_wait = Seconds(0.75);
  e.optimizer = Seconds(1);
  return e;
}

EvalEvent an_eval() {
  EvalEvent e;
  e.step = 10;
  e.samples = 80;
  e.loss = 4.25;
  return e;
}

CalibrationEvent a_calibration() {
  CalibrationEvent e;
  e.step = 20;
  e.samples = 160;
  e.calibration = 4.5;
  e.low = 1.5;
  e.high = 12;
  e.lr_aware = 0.25;
  e.gns = 32;
  e.lr = 0.001;
  return e;
}

DecisionEvent a_decision() {
  DecisionEvent e;
  e.step = 10;
  e.candidates = 12;
  e.best_plan = plan_of("dp2.tp1.pp1.mb8");
  e.best_global_batch = 16;
  e.gain = 0.125;
  e.action = DecisionAction::kSwitch;
  e.why = "dp2.tp1.pp1.mb8 at batch 16: Goodput +12%";
  e.reason = "Goodput +12%";
  return e;
}

ReconfigureEvent a_move() {
  ReconfigureEvent e;
  e.step = 10;
  e.from = plan_of("dp1.tp2.pp1.mb4");
  e.to = plan_of("dp2.tp1.pp1.mb8");
  e.global_batch_from = 8;
  e.global_batch_to = 16;
  e.done = true;
  e.pause = Seconds(0.5);
  e.bytes_moved = Bytes(4096);
  e.bytes_read = Bytes(1024);
  e.groups = Seconds(0.125);
  e.allocate = Seconds(0.25);
  e.transfer = Seconds(0.0625);
  e.commit = Seconds(0.03125);
  return e;
}

CheckpointEvent a_checkpoint() {
  CheckpointEvent e;
  e.step = 20;
  e.samples = 160;
  e.path = "run/checkpoints/step-20";
  e.bytes = Bytes(12'345'678'901);
  e.copy = Seconds(0.125);
  e.write = Seconds(2.5);
  return e;
}

BadStepEvent a_bad_step() {
  BadStepEvent e;
  e.step = 21;
  e.samples = 168;
  e.loss = 9.5;
  e.action = OnBadStep::kRollback;
  e.from = "run/checkpoints/step-20";
  e.why = "the gradient is not finite";
  return e;
}

EndEvent an_end() {
  EndEvent e;
  e.reason = EndReason::kLoss;
  e.step = 40;
  e.samples = 320;
  e.loss = 3.5;
  e.held_out_loss = 3.75;
  e.seconds = Seconds(12.5);
  e.tokens_per_s = 1638.5;
  e.moves = 2;
  e.pause = Seconds(0.75);
  return e;
}

std::vector<Event> one_of_each() {
  return {a_start(),    a_restart(), a_step(),       an_eval(),    a_calibration(),
          a_decision(), a_move(),    a_checkpoint(), a_bad_step(), an_end()};
}

// Programs outside this repository read these files, and depend on the keys, their order and the
// form of values.
TEST(EventJson, TheFormatOfEachKindStaysAsItIs) {
  EXPECT_EQ(text_of(a_start()),
            R"({"event":"start","t":0.5,"model":"tiny","parameters":1002624,)"
            R"("plan":{"tp":1,"cp":1,"pp":2,"vp":1,"dp":2,"ep":1,"etp":1,"micro_batch":4,"zero":0,)"
            R"("recompute":"none","sp":false,"schedule":"1f1b"},"ranks":4,"device":"cpu",)"
            R"("precision":"fp32","seq_len":64,"global_batch":8,"data_tokens":8388608,)"
            R"("peak_flops":250000000000.0,"adapt":"full","cluster":null})");
  EXPECT_EQ(text_of(a_restart()),
            R"({"event":"restart","t":0.5,"step":20,"samples":160,)"
            R"("from":"run/checkpoints/step-20",)"
            R"("plan":{"tp":1,"cp":1,"pp":1,"vp":1,"dp":4,"ep":1,"etp":1,"micro_batch":2,"zero":1,)"
            R"("recompute":"none","sp":false,"schedule":"1f1b"},"global_batch":8,"ranks":4,)"
            R"("why":"--resume","skipped":"run/checkpoints/step-30: torn",)"
            R"("options":{"lr":{"from":"0.001","to":"0.0003"},"steps":{"from":"20","to":"40"},)"
            R"("until-loss":{"from":null,"to":"3"}}})");
  EXPECT_EQ(text_of(a_step()),
            R"({"event":"step","t":0.5,"step":3,"samples":24,"tokens":1536,"loss":5.5,)"
            R"("grad_norm":1.25,"lr":0.001,"global_batch":8,"plan":"dp1.tp2.pp2.mb4.vp2.sp",)"
            R"("step_time_s":0.25,"tokens_per_s":2048.0,"mfu":0.375,"gns":12.5,"gns_low":10.0,)"
            R"("gns_high":20.0,"g2":-0.5,"s":3.0,"gns_scales":11.0,)"
            R"("norms":[[2.0,1.5,4.0],[8.0,0.75,1.0]],"scale_norms":[[1.0,0.5,8.0]],"bcrit":25.0,)"
            R"("goodput":16.0,"data_hash":"00ab00cd00ef0012","tp_wait_s":0.125,)"
            R"("pp_wait_s":0.0625,"dp_wait_s":0.5,"sync_wait_s":0.75,"optimizer_s":1.0})");
  EXPECT_EQ(text_of(an_eval()), R"({"event":"eval","t":0.5,"step":10,"samples":80,"loss":4.25})");
  EXPECT_EQ(text_of(a_calibration()),
            R"({"event":"calibration","t":0.5,"step":20,"samples":160,"calibration":4.5,"low":1.5,)"
            R"("high":12.0,"lr_aware":0.25,"gns":32.0,"lr":0.001})");
  EXPECT_EQ(text_of(a_decision()),
            R"({"event":"decision","t":0.5,"step":10,"candidates":12,)"
            R"("best":{"plan":"dp2.tp1.pp1.mb8","global_batch":16},"gain":0.125,)"
            R"("action":"switch","why":"dp2.tp1.pp1.mb8 at batch 16: Goodput +12%",)"
            R"("reason":"Goodput +12%"})");
  EXPECT_EQ(text_of(a_move()),
            R"({"event":"reconfigure","t":0.5,"step":10,"from":"dp1.tp2.pp1.mb4",)"
            R"("to":"dp2.tp1.pp1.mb8","global_batch_from":8,"global_batch_to":16,"done":true,)"
            R"("error":null,"pause_s":0.5,"bytes_moved":4096,"bytes_read":1024,"groups_s":0.125,)"
            R"("allocate_s":0.25,"transfer_s":0.0625,"commit_s":0.03125})");
  EXPECT_EQ(text_of(a_checkpoint()),
            R"({"event":"checkpoint","t":0.5,"step":20,"samples":160,)"
            R"("path":"run/checkpoints/step-20","error":null,"bytes":12345678901,)"
            R"("copy_s":0.125,"write_s":2.5})");
  EXPECT_EQ(text_of(a_bad_step()),
            R"({"event":"bad_step","t":0.5,"step":21,"samples":168,"loss":9.5,"grad_norm":null,)"
            R"("action":"rollback","from":"run/checkpoints/step-20",)"
            R"("why":"the gradient is not finite"})");
  EXPECT_EQ(text_of(an_end()),
            R"({"event":"end","t":0.5,"reason":"loss","error":null,"step":40,"samples":320,)"
            R"("loss":3.5,"held_out_loss":3.75,"seconds":12.5,"tokens_per_s":1638.5,"moves":2,)"
            R"("pause_s":0.75})");
}

TEST(EventJson, WhatIsNotKnownIsNull) {
  StepEvent step = a_step();
  step.mfu = step.gns = step.gns_low = step.gns_high = step.g2 = step.s = std::nullopt;
  step.gns_scales = step.critical_batch = step.goodput = std::nullopt;
  step.norms.clear();
  step.scale_norms.clear();
  const Json json = event_to_json({Seconds(1), step});
  for (const char* key : {"mfu", "gns", "gns_low", "gns_high", "g2", "s", "gns_scales", "norms",
                          "scale_norms", "bcrit", "goodput"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  RestartEvent restart = a_restart();
  restart.from.clear();
  restart.skipped.clear();
  EXPECT_TRUE(event_to_json({Seconds(1), restart}).at("from").is_null());
  EXPECT_TRUE(event_to_json({Seconds(1), restart}).at("skipped").is_null());
  DecisionEvent decision = a_decision();
  decision.reason.clear();
  EXPECT_TRUE(event_to_json({Seconds(1), decision}).at("reason").is_null());
}

// Random events, with any values that a run may write.
class RandomEvents {
 public:
  explicit RandomEvents(std::uint64_t seed) : random_(seed) {}

  StartEvent start() {
    StartEvent e;
    e.model = text();
    e.parameters = count();
    e.plan = plan();
    e.ranks = count();
    e.device = one_of(kDeviceKinds);
    e.precision = one_of(kPrecisions);
    e.seq_len = count();
    e.global_batch = batch();
    e.data_tokens = count();
    if (coin()) e.peak = FlopsPerSec(std::abs(number()));
    e.adapt = one_of(kAdapts);
    if (coin()) e.cluster = cluster();
    return e;
  }
  RestartEvent restart() {
    RestartEvent e;
    e.step = count();
    e.samples = count();
    e.from = text();
    e.plan = plan();
    e.global_batch = batch();
    e.ranks = count();
    e.why = text();
    e.skipped = text();
    e.options = option_changes();
    return e;
  }
  StepEvent step() {
    StepEvent e;
    e.step = count();
    e.samples = count();
    e.tokens = count();
    e.loss = number();
    e.grad_norm = number();
    e.lr = number();
    e.global_batch = batch();
    e.plan = plan();
    e.step_time = time();
    e.tokens_per_s = number();
    for (std::optional<double>* each : {&e.mfu, &e.gns, &e.gns_low, &e.gns_high, &e.g2, &e.s,
                                        &e.gns_scales, &e.critical_batch, &e.goodput}) {
      *each = maybe();
    }
    e.norms = norms();
    e.scale_norms = norms();
    e.data_hash = random_();
    for (Seconds* each : {&e.tp_wait, &e.pp_wait, &e.dp_wait, &e.sync_wait, &e.optimizer}) {
      *each = time();
    }
    return e;
  }
  EvalEvent eval() {
    EvalEvent e;
    e.step = count();
    e.samples = count();
    e.loss = maybe();
    return e;
  }
  CalibrationEvent calibration() {
    CalibrationEvent e;
    e.step = count();
    e.samples = count();
    for (double* each : {&e.calibration, &e.low, &e.high, &e.lr_aware, &e.gns, &e.lr}) {
      *each = number();
    }
    return e;
  }
  DecisionEvent decision() {
    DecisionEvent e;
    e.step = count();
    e.candidates = count();
    e.best_plan = plan();
    e.best_global_batch = batch();
    e.gain = number();
    e.action = one_of(kDecisionActions);
    e.why = text();
    e.reason = text();
    return e;
  }
  ReconfigureEvent reconfigure() {
    ReconfigureEvent e;
    e.step = count();
    e.from = plan();
    e.to = plan();
    e.global_batch_from = batch();
    e.global_batch_to = batch();
    e.done = coin();
    e.error = text();
    e.bytes_moved = bytes();
    e.bytes_read = bytes();
    for (Seconds* each : {&e.pause, &e.groups, &e.allocate, &e.transfer, &e.commit}) {
      *each = time();
    }
    return e;
  }
  CheckpointEvent checkpoint() {
    CheckpointEvent e;
    e.step = count();
    e.samples = count();
    e.path = text();
    e.error = text();
    e.bytes = bytes();
    e.copy = time();
    e.write = time();
    return e;
  }
  BadStepEvent bad_step() {
    BadStepEvent e;
    e.step = count();
    e.samples = count();
    e.loss = maybe();
    e.grad_norm = maybe();
    e.action = one_of(kOnBadSteps);
    e.from = text();
    e.why = text();
    return e;
  }
  EndEvent end() {
    EndEvent e;
    e.reason = one_of(kEndReasons);
    e.error = text();
    e.step = count();
    e.samples = count();
    e.loss = maybe();
    e.held_out_loss = maybe();
    e.seconds = time();
    e.tokens_per_s = number();
    e.moves = count();
    e.pause = time();
    return e;
  }

  std::vector<Event> one_of_each() {
    return {start(),    restart(),     step(),       eval(),     calibration(),
            decision(), reconfigure(), checkpoint(), bad_step(), end()};
  }
  Seconds time() { return Seconds(std::uniform_real_distribution<double>(0, 1e6)(random_)); }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool coin() { return below(2) == 0; }
  template <typename T, std::size_t n>
  T one_of(const std::array<T, n>& values) {
    return values[below(n)];
  }
  std::int64_t count() { return static_cast<std::int64_t>(random_() >> (4 + below(60))); }
  std::int64_t batch() { return 1 + static_cast<std::int64_t>(below(std::size_t{1} << 30)); }
  Bytes bytes() { return Bytes(static_cast<double>(random_() >> (11 + below(50)))); }
  // Returns a number of any size and sign.
  double number() {
    const double digits = std::uniform_real_distribution<double>(-1, 1)(random_);
    return std::ldexp(digits, static_cast<int>(below(1200)) - 600);
  }
  std::optional<double> maybe() { return coin() ? std::optional(number()) : std::nullopt; }
  std::vector<NormEntry> norms() {
    std::vector<NormEntry> all(below(4));
    for (NormEntry& norm : all) norm = {number(), number(), number()};
    return all;
  }
  // Returns changes with different names; a text may be empty.
  std::vector<OptionChange> option_changes() {
    std::vector<OptionChange> all(below(4));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = {fmt::format("{}{}", text(), i), text(), text()};
    }
    return all;
  }
  std::string text() {
    std::string all;
    const std::vector<std::string> pieces = {"a", "\"",   "\\", "\n", "é",
                                             "…", "\x01", " ",  "{",  "/"};
    for (std::size_t n = below(6); n > 0; --n) all += pieces[below(pieces.size())];
    return all;
  }
  ParallelPlan plan() {
    ParallelPlan p;
    for (std::int64_t* each : {&p.tp, &p.cp, &p.pp, &p.dp, &p.ep, &p.micro_batch}) {
      *each = std::int64_t{1} << below(6);
    }
    p.zero = static_cast<int>(below(4));
    p.sp = coin();
    p.recompute = one_of(std::array{Recompute::kNone, Recompute::kSelective, Recompute::kFull});
    p.schedule =
        one_of(std::array{ScheduleKind::k1F1B, ScheduleKind::kGPipe, ScheduleKind::kZeroBubble});
    if (coin()) {
      p.vp = 2 + static_cast<std::int64_t>(below(4));
      p.schedule = ScheduleKind::kInterleaved;
    }
    for (std::size_t n = below(5); n > 0; --n) {
      p.stage_layers.push_back(static_cast<std::int64_t>(below(9)));
    }
    return p;
  }
  ClusterSpec cluster() {
    const std::vector<std::string> names = catalog_gpu_names();
    const GpuSpec gpu = *catalog_gpu(names[below(names.size())]);
    ClusterSpec made = *cluster_of(gpu, 1 + static_cast<std::int64_t>(below(64)), 0);
    made.gpu.efficiency.matmul = 0.001 + 0.998 * std::uniform_real_distribution<double>()(random_);
    made.network.latency = microseconds(std::uniform_real_distribution<double>(0, 99)(random_));
    if (coin()) made.framework = "megatron";
    return made;
  }

  std::mt19937_64 random_;
};

TEST(EventJson, WhatIsPrintedIsParsedAgain) {
  RandomEvents random(1);
  std::set<std::size_t> kinds;
  for (int i = 0; i < 300; ++i) {
    for (const Event& event : random.one_of_each()) {
      const TimedEvent timed{random.time(), event};
      const std::string text = event_to_json(timed).dump();
      const Result<std::optional<TimedEvent>> read = parse_text(text);
      ASSERT_TRUE(read) << read.error().message << "\n" << text;
      ASSERT_TRUE(*read == timed) << text;
      kinds.insert(event.index());
    }
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Event>);
}

// JSON has no such numbers. A number that is always there is read as NaN, an optional one as
// nullopt.
TEST(EventJson, ANumberThatIsNotFiniteIsNull) {
  for (const double odd : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL}) {
    StepEvent step = a_step();
    step.loss = odd;
    step.grad_norm = odd;
    step.gns_high = odd;
    step.norms = {{8, odd, 1}};
    const Json json = event_to_json({Seconds(1), step});
    for (const char* key : {"loss", "grad_norm", "gns_high"}) {
      EXPECT_TRUE(json.at(key).is_null()) << key;
    }
    EXPECT_EQ(json.at("norms").dump(), "[[8.0,null,1.0]]");
    const auto read = parse_event(json, "test");
    ASSERT_TRUE(read) << read.error().message;
    const StepEvent& again = std::get<StepEvent>((*read)->event);
    EXPECT_TRUE(std::isnan(again.loss));
    EXPECT_TRUE(std::isnan(again.grad_norm));
    EXPECT_EQ(again.gns_high, std::nullopt);
    EXPECT_TRUE(std::isnan(again.norms[0].value));

    EvalEvent eval = an_eval();
    eval.loss = odd;
    EXPECT_TRUE(event_to_json({Seconds(1), eval}).at("loss").is_null());
  }
}

TEST(EventJson, KeysThatThisVersionDoesNotKnowAreLeftAlone) {
  for (const Event& event : one_of_each()) {
    Json json = event_to_json({Seconds(0.5), event});
    json["of_later"] = {{"a", 1}};
    const auto read = parse_event(json, "test");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE((*read)->event == event) << json;
  }
}

TEST(EventJson, KindsThatThisVersionDoesNotKnowAreNoEvents) {
  const auto read = parse_text(R"({"event":"of_later","t":1.5,"step":"x"})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->has_value());
}

TEST(EventJson, KeysThatEarlierVersionsDidNotWriteMayBeMissing) {
  const auto may_lack = [](const Event& event, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      EXPECT_EQ(error_of(without(event, key)), "") << key;
      EXPECT_EQ(error_of(changed(event, key, nullptr)), "") << key;
    }
  };
  may_lack(a_start(), {"adapt", "cluster", "peak_flops"});
  may_lack(a_step(), {"gns", "gns_low", "gns_high", "gns_scales", "norms", "scale_norms",
                      "data_hash", "sync_wait_s"});
  may_lack(a_decision(), {"reason"});
  may_lack(a_move(), {"bytes_read", "error"});
  may_lack(an_end(), {"moves", "pause_s", "held_out_loss"});
  const auto read = parse_text(without(an_end(), "moves"));
  EXPECT_EQ(std::get<EndEvent>((*read)->event).moves, 0);
}

TEST(EventJson, ErrorsNameTheLineTheFieldAndTheValue) {
  EXPECT_EQ(error_of("3"), "events.jsonl:7: got 3; want an object");
  EXPECT_EQ(error_of(R"({"t":1})"), "events.jsonl:7: event: missing; want a string");
  EXPECT_EQ(error_of(R"({"event":"eval"})"),
            "events.jsonl:7: t: missing; want a number from 0 to 1e+12");
  EXPECT_EQ(error_of(changed(a_step(), "samples", -4)),
            "events.jsonl:7: samples: got -4; want an integer from 0 to 1152921504606846976");
  EXPECT_EQ(error_of(changed(a_step(), "global_batch", 0)),
            "events.jsonl:7: global_batch: got 0; want an integer from 1 to 1073741824");
  EXPECT_EQ(error_of(changed(a_step(), "loss", "low")),
            "events.jsonl:7: loss: got \"low\"; want a number");
  EXPECT_EQ(error_of(without(a_step(), "loss")), "events.jsonl:7: loss: missing; want a number");
  EXPECT_EQ(error_of(changed(a_step(), "step_time_s", -1)),
            "events.jsonl:7: step_time_s: got -1; want a number from 0 to 1e+12");
  EXPECT_EQ(error_of(changed(a_step(), "plan", "dp2.tq1")),
            "events.jsonl:7: plan: got \"tq1\" in \"dp2.tq1\"; want tp");
  EXPECT_TRUE(
      error_of(changed(a_move(), "from", "7")).starts_with("events.jsonl:7: from: got \"7\""));
  EXPECT_EQ(error_of(changed(a_step(), "norms", {{1, 2, 3}, {4, 5}})),
            "events.jsonl:7: norms: got [4,5] at entry 1; want [samples, norm, count]");
  EXPECT_EQ(error_of(changed(a_step(), "norms", "none")),
            "events.jsonl:7: norms: got \"none\"; want [[samples, norm, count], …]");
  EXPECT_EQ(error_of(changed(a_step(), "data_hash", "12")),
            "events.jsonl:7: data_hash: got \"12\"; want 16 hexadecimal digits");
  EXPECT_EQ(error_of(changed(a_move(), "done", 1)),
            "events.jsonl:7: done: got 1; want true or false");
  EXPECT_EQ(error_of(without(a_move(), "done")),
            "events.jsonl:7: done: missing; want true or false");
  EXPECT_EQ(error_of(changed(a_decision(), "best", 4)),
            "events.jsonl:7: best: got 4; want an object");
  EXPECT_EQ(error_of(changed(a_decision(), "best", {{"plan", "dp1.tp1.pp1.mb1"}})),
            "events.jsonl:7: best: global_batch: missing; want an integer from 1 to 1073741824");
  EXPECT_EQ(error_of(changed(a_decision(), "action", "jump")),
            "events.jsonl:7: action: got \"jump\"; want keep, switch or later");
  EXPECT_EQ(error_of(changed(a_bad_step(), "action", "jump")),
            "events.jsonl:7: action: got \"jump\"; want stop, skip or rollback");
  EXPECT_EQ(error_of(changed(a_start(), "device", "abacus")),
            "events.jsonl:7: device: got \"abacus\"; want cpu or cuda");
  EXPECT_EQ(error_of(without(a_start(), "device")),
            "events.jsonl:7: device: missing; want a string");
  EXPECT_EQ(error_of(changed(an_end(), "reason", "bored")),
            "events.jsonl:7: reason: got \"bored\"; want steps, samples, loss, time, signal, "
            "not_finite, spike or failed");
  EXPECT_EQ(error_of(without(a_start(), "plan")), "events.jsonl:7: plan: missing; want a plan");
  EXPECT_EQ(error_of(changed(a_start(), "plan", {{"tp", 0}})),
            "events.jsonl:7: plan: tp: got 0; want an integer from 1 to 1000000");
  EXPECT_EQ(error_of(changed(a_start(), "cluster", {{"nodes", 0}})),
            "events.jsonl:7: cluster: nodes: got 0; want an integer from 1 to 1000000");
  EXPECT_EQ(error_of(changed(a_checkpoint(), "bytes", 0.5)),
            "events.jsonl:7: bytes: got 0.5; want an integer from 0 to 9007199254740992");
}

}  // namespace
}  // namespace copus
