#include "copus/cost/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

ClusterSpec cluster_named(const std::string& name) { return load_cluster(name).value(); }

ParallelPlan plan_of(const std::string& text) {
  return parse_plan_text(text, "--plan").value().plan;
}

// The model has so many layers and so small a vocabulary that embedding and head take next to no
// time: the stages are equal to a few parts in ten thousand.
ModelSpec uniform_model(std::int64_t layers, bool moe) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = 8192;
  model.ffn = 28'672;
  model.heads = 64;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.vocab = 64;
  if (moe) model.moe = {8, 2, 4096, 0, 0, false};
  return model;
}

StageSplit split_of(const ParallelPlan& plan, const ModelSpec& model) {
  return equal_split(model.layers, plan.pp * plan.vp);
}

StepEstimate closed_form(const StepModel& step, const ParallelPlan& plan) {
  return step.closed_form(plan, step.shape_costs(plan), split_of(plan, step.model()));
}

double relative(Seconds a, Seconds b) { return std::abs(a / b - 1); }

// A random job with a valid plan of uniform stages.
struct Draw {
  ModelSpec model;
  ParallelPlan plan;
  std::int64_t global_batch = 1;
  ClusterSpec cluster;
  CostOptions options;
};
Draw draw_uniform(std::mt19937& random) {
  auto pick = [&random](std::initializer_list<std::int64_t> values) {
    return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
  };
  Draw draw;
  ParallelPlan& p = draw.plan;
  p.tp = pick({1, 1, 2, 4, 8});
  p.cp = pick({1, 1, 1, 2});
  p.pp = pick({1, 2, 3, 4, 7, 8, 16});
  p.dp = pick({1, 2, 4, 6, 16});
  p.micro_batch = pick({1, 2});
  const std::int64_t schedule = p.pp > 1 ? pick({0, 1, 1, 2, 2, 3}) : 1;
  p.schedule = static_cast<ScheduleKind>(schedule);
  std::int64_t micro_batches = pick({1, 2, 3, 4, 5, 8, 16, 33, 64});
  if (p.schedule == ScheduleKind::kInterleaved) {
    p.vp = pick({2, 3, 5});
    micro_batches = p.pp * pick({1, 2, 4, 8});
  }
  p.recompute = static_cast<Recompute>(pick({0, 1, 2}));
  p.sp = p.tp > 1 && pick({0, 1}) == 1;
  p.zero = static_cast<int>(p.pp == 1 ? pick({0, 1, 2, 3}) : pick({0, 1}));
  const bool moe = pick({0, 0, 0, 1}) == 1;
  if (moe && (p.dp * p.cp) % 2 == 0) p.ep = 2;
  p.sp = p.sp || (p.ep > 1 && p.tp > 1);
  draw.model = uniform_model(p.pp * p.vp * pick({40, 64}), moe);
  draw.global_batch = p.dp * p.micro_batch * micro_batches;
  const std::string gpu = pick({0, 1}) == 0 ? "H100-80GB-SXM" : "A100-80GB-SXM";
  // Tensor parallelism stays inside the node. Over a slow network the embedding's all-reduce would
  // make the first stage longer than the others.
  const std::int64_t per_node = p.tp * (p.cp * p.dp * p.pp % 2 == 0 ? pick({1, 2}) : 1);
  draw.cluster = cluster_named(std::to_string(p.gpus() / per_node) + "x" +
                               std::to_string(per_node) + "x" + gpu);
  draw.options.grad_overlap = static_cast<GradOverlap>(pick({0, 1, 2}));
  return draw;
}

TEST(Step, ClosedFormAndTimelineAgreeOnUniformStages) {
  std::mt19937 random(20'250);
  double worst = 0;
  int drawn = 0, by_kind[4] = {};
  while (drawn < 1500) {
    const Draw draw = draw_uniform(random);
    constexpr std::int64_t kSeqLen = 2048;
    const Result<void> valid =
        draw.plan.validate(draw.model, draw.cluster, kSeqLen, draw.global_batch);
    ASSERT_TRUE(valid.has_value()) << valid.error().message;
    const StepModel step(draw.model, draw.cluster, kSeqLen, draw.global_batch, draw.options);
    const StepEstimate fast = closed_form(step, draw.plan), exact = step.predict(draw.plan);
    ++drawn;
    ++by_kind[static_cast<int>(draw.plan.schedule)];
    worst = std::max(worst, relative(fast.time, exact.time));
    ASSERT_LT(relative(fast.time, exact.time), 1e-3)
        << short_name(draw.plan) << " on " << draw.cluster.nodes << 'x'
        << draw.cluster.gpus_per_node << ", " << draw.plan.micro_batches(draw.global_batch)
        << " micro-batches: " << fast.time.v << " s and " << exact.time.v << " s";
    EXPECT_NEAR(fast.memory.total() / exact.memory.total(), 1, 1e-9) << short_name(draw.plan);
  }
  std::printf("%d plans (gpipe %d, 1f1b %d, interleaved %d, zero_bubble %d): worst %.4f%%\n", drawn,
              by_kind[0], by_kind[1], by_kind[2], by_kind[3], 100 * worst);
}

struct RealCase {
  const char* model;
  const char* cluster;
  std::int64_t global_batch;
  const char* plan;
};
constexpr RealCase kRealCases[] = {
    {"llama-3-8b", "4x8xH100-80GB-SXM", 256, "pp=1,zero=1"},
    {"llama-3-8b", "4x8xH100-80GB-SXM", 256, "pp=1,zero=3"},
    {"llama-3-8b", "4x8xH100-80GB-SXM", 256, "tp=2,sp=1,pp=4,zero=1"},
    {"llama-3-8b", "4x8xH100-80GB-SXM", 256, "pp=8,vp=2,zero=1"},
    {"llama-3-8b", "4x8xH100-80GB-SXM", 32, "pp=16"},
    {"llama-3-8b", "4x8xH100-80GB-SXM", 64, "pp=4,schedule=zero_bubble"},
    {"llama-3-8b", "4x8xH100-80GB-SXM", 64, "pp=4,schedule=gpipe"},
    {"llama-3-70b", "8x8xH100-80GB-SXM", 128, "tp=8,sp=1,pp=4,zero=1"},
    {"llama-3-70b", "8x8xH100-80GB-SXM", 128, "tp=4,sp=1,pp=8,vp=5,zero=1,recompute=full"},
    {"gpt3-175b", "8x8xA100-80GB-SXM", 64, "tp=8,pp=8,vp=3,recompute=full"},
    {"gpt3-175b", "128x8xA100-80GB-SXM", 1536, "tp=8,sp=1,pp=16,zero=1,recompute=selective"},
    {"llama-3.1-405b", "224x8xH100-80GB-SXM", 896, "tp=8,sp=1,pp=14,zero=1,vp=9"},
    {"llama-3.2-3b", "1x8xH100-80GB-SXM", 16, "pp=4"},
    {"mixtral-8x7b", "8x8xH100-80GB-SXM", 256, "pp=4,ep=8,zero=1"},
    {"gpt2-xl", "8x8xV100-16GB-SXM", 1024, "pp=8,micro_batch=4"},
};

// The ends carry embedding and head, so the closed form is an approximation. This test bounds its
// error.
TEST(Step, ClosedFormIsCloseOnRealModels) {
  double worst = 0, sum = 0;
  for (const RealCase& c : kRealCases) {
    const ModelSpec model = load_model(c.model).value();
    ParallelPlan plan = plan_of(c.plan);
    ClusterSpec cluster = cluster_named(c.cluster);
    if (plan.dp == 1) plan.dp = cluster.gpus() / (plan.tp * plan.pp);
    cluster.nodes = plan.gpus() / cluster.gpus_per_node;
    const std::int64_t seq_len = std::min<std::int64_t>(2048, model.max_positions);
    CostOptions options;
    if (cluster.gpu.peak_bf16.v <= 0) options.precision = Precision::kFp16;
    const Result<void> valid = plan.validate(model, cluster, seq_len, c.global_batch);
    ASSERT_TRUE(valid.has_value()) << valid.error().message;
    const StepModel step(model, cluster, seq_len, c.global_batch, options);
    const StepEstimate fast = closed_form(step, plan), exact = step.predict(plan);
    std::printf("%-14s %-34s closed form %+.3f%%\n", c.model, short_name(plan).c_str(),
                100 * (fast.time / exact.time - 1));
    worst = std::max(worst, relative(fast.time, exact.time));
    sum += relative(fast.time, exact.time);
    EXPECT_NEAR(fast.memory.total() / exact.memory.total(), 1, 1e-6) << short_name(plan);
  }
  std::printf("mean %.3f%%, worst %.3f%%\n", 100 * sum / std::size(kRealCases), 100 * worst);
  EXPECT_LT(worst, 0.01);
  EXPECT_LT(sum / std::size(kRealCases), 0.002);
}

// If chunks do not divide the layers, the search compares stages of different depth. It plays the
// few best candidates, so the closed form must be near, not exact.
TEST(Step, ClosedFormIsNearOnUnevenSplits) {
  double sum = 0, worst = 0;
  int plans = 0;
  std::string worst_plan;
  for (const char* name : {"gpt2-xl", "llama-3-8b", "llama-3-70b", "mixtral-8x7b"}) {
    const ModelSpec model = load_model(name).value();
    for (const std::int64_t pp : {2, 3, 4, 6, 8, 12, 16}) {
      ClusterSpec cluster = cluster_named("1x8xA100-80GB-SXM");
      cluster.nodes = pp;
      for (std::int64_t vp = 1; vp <= std::min<std::int64_t>(4, model.layers / pp); ++vp) {
        for (const std::int64_t groups : {1, 2, 8}) {
          ParallelPlan plan;
          plan.pp = pp;
          plan.vp = vp;
          plan.dp = 8;
          plan.schedule = vp > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
          const std::int64_t batch = plan.dp * pp * groups;
          const StepModel step(model, cluster, 1024, batch, CostOptions());
          const ShapeCosts costs = step.shape_costs(plan);
          const StageSplit split = step.balanced(plan, costs);
          plan.stage_layers = expand(split, pp * vp);
          if (!plan.validate(model, cluster, 1024, batch)) continue;
          const double error =
              relative(step.closed_form(plan, costs, split).time, step.predict(plan).time);
          sum += error;
          ++plans;
          if (error > worst) {
            worst = error;
            worst_plan = short_name(plan);
          }
        }
      }
    }
  }
  std::printf("%d plans: mean %.2f%%, worst %.1f%% (%s)\n", plans, 100 * sum / plans, 100 * worst,
              worst_plan.c_str());
  EXPECT_GT(plans, 100);
  EXPECT_LT(sum / plans, 0.03);
}

// DeepSeek-V3's three leading dense layers make the first ranks different from the rest.
TEST(Step, ClosedFormSeesTheRankThatNeedsMostMemory) {
  const ModelSpec model = load_model("deepseek-v3").value();
  for (const std::int64_t pp : {4, 8, 12, 16, 32}) {
    ParallelPlan plan;
    plan.pp = pp;
    plan.dp = 8;
    plan.ep = 8;
    plan.zero = 1;
    ClusterSpec cluster = cluster_named("1x8xH100-80GB-SXM");
    cluster.nodes = pp;
    const StepModel step(model, cluster, 1024, 512, CostOptions());
    const ShapeCosts costs = step.shape_costs(plan);
    const StageSplit split = step.balanced(plan, costs);
    plan.stage_layers = expand(split, pp);
    const StepEstimate fast = step.closed_form(plan, costs, split), exact = step.predict(plan);
    EXPECT_NEAR(fast.memory.total() / exact.memory.total(), 1, 0.01) << short_name(plan);
    EXPECT_LT(relative(fast.time, exact.time), 0.05) << short_name(plan);
  }
}

// What a search uses to leave plans out agrees with the closed form.
TEST(Step, ShortcutsOfTheSearchAgreeWithTheClosedForm) {
  std::mt19937 random(7);
  int compared = 0;
  for (int i = 0; i < 800; ++i) {
    const Draw draw = draw_uniform(random);
    const StepModel step(draw.model, draw.cluster, 2048, draw.global_batch, draw.options);
    const ShapeCosts costs = step.shape_costs(draw.plan);
    for (const StageSplit& split :
         {split_of(draw.plan, draw.model), step.balanced(draw.plan, costs)}) {
      const StepEstimate estimate = step.closed_form(draw.plan, costs, split);
      EXPECT_EQ(step.closed_form_memory(draw.plan, costs, split), estimate.memory.total());
      if (draw.plan.schedule == ScheduleKind::k1F1B ||
          draw.plan.schedule == ScheduleKind::kInterleaved) {
        EXPECT_LE(step.least_time(draw.plan, costs), estimate.time) << short_name(draw.plan);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 500);
}

// Adds up what all ranks hold. A part that n ranks hold counts once.
TEST(Step, TheParametersOfAllRanksAreThoseOfTheModel) {
  struct Case {
    const char* model;
    const char* cluster;
    const char* plan;
  };
  for (const Case& c :
       {Case{"deepseek-v3", "128x8xH100-80GB-SXM", "dp32.tp2.pp16.mb1.ep64.etp1.sp.split4x15-1"},
        Case{"deepseek-v3", "128x8xH100-80GB-SXM", "dp32.tp2.pp16.mb1.ep16.sp.split4x15-1"},
        Case{"deepseek-v3", "256x8xH100-80GB-SXM", "dp2048.tp1.pp1.mb1.ep256"},
        Case{"mixtral-8x7b", "4x8xH100-80GB-SXM", "dp2.tp4.pp4.mb1.ep4.etp2.sp"},
        Case{"qwen3-235b-a22b", "8x8xH100-80GB-SXM", "dp32.tp2.pp1.mb1.ep64.etp1.sp"},
        Case{"llama-4-maverick", "64x8xH100-80GB-SXM", "dp128.tp4.pp1.mb1.ep128.sp"},
        Case{"llama-4-maverick", "16x8xGB200", "dp64.tp1.pp2.mb1.ep64.vp12"}}) {
    const ModelSpec model = load_model(c.model).value();
    const ClusterSpec cluster = cluster_named(c.cluster);
    const ParallelPlan plan = plan_of(c.plan);
    const StepModel step(model, cluster, 4096, 8192, CostOptions());
    ASSERT_TRUE(step.validate(plan)) << step.validate(plan).error().message;
    const ShapeCosts costs = step.shape_costs(plan);
    double sum = 0, layers = 0;
    for (std::int64_t rank = 0; rank < plan.pp; ++rank) {
      const StepModel::RankPieces pieces = step.pieces_of_rank(plan, costs, rank);
      const RankParams params = step.params(plan, pieces);
      sum += params.dense * static_cast<double>(plan.tp) +
             params.expert * static_cast<double>(plan.ep * plan.expert_tp());
      layers += pieces.dense_layers + pieces.moe_layers;
    }
    EXPECT_EQ(layers, static_cast<double>(model.layers));
    // Every tensor-parallel rank holds norms, routers and projections into the latent whole.
    const auto whole = static_cast<double>(
        2 * model.layers * model.norm_params() + model.norm_params() +
        model.moe_layers() * model.router_params() +
        (model.mla.enabled
             ? model.layers * model.hidden *
                   (model.mla.q_lora_rank + model.mla.kv_lora_rank + model.mla.qk_rope_head_dim)
             : 0));
    const auto total = static_cast<double>(model.total_params());
    EXPECT_NEAR(sum - static_cast<double>(plan.tp - 1) * whole, total, 1e-9 * total) << c.plan;
  }
}

TEST(Step, BreakdownAddsUpToTheTimeAndNoPartIsNegative) {
  std::mt19937 random(7);
  auto check = [](const StepEstimate& e, const std::string& name) {
    const StepBreakdown& b = e.breakdown;
    EXPECT_NEAR(b.total() / e.time, 1, 1e-12) << name;
    for (const Seconds part :
         {b.compute, b.recompute, b.tp, b.cp, b.ep, b.pipeline, b.dp, b.optimizer, b.overhead}) {
      EXPECT_GE(part.v, -1e-9 * e.time.v) << name;
      EXPECT_TRUE(std::isfinite(part.v)) << name;
    }
  };
  for (int i = 0; i < 200; ++i) {
    const Draw draw = draw_uniform(random);
    const StepModel step(draw.model, draw.cluster, 2048, draw.global_batch, draw.options);
    check(step.predict(draw.plan), short_name(draw.plan));
    check(closed_form(step, draw.plan), short_name(draw.plan));
  }
}

TEST(Step, BreakdownNamesWhatThePlanDoes) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = cluster_named("1x8xH100-80GB-SXM");
  const StepModel step(model, cluster, 4096, 64, CostOptions());
  auto predict = [&](const char* plan) { return step.predict(plan_of(plan)).breakdown; };

  const StepBreakdown alone = predict("dp=8");
  EXPECT_EQ(alone.tp.v, 0);
  EXPECT_EQ(alone.cp.v, 0);
  EXPECT_EQ(alone.ep.v, 0);
  EXPECT_EQ(alone.recompute.v, 0);
  EXPECT_NEAR(alone.pipeline.v, 0, 1e-9);
  EXPECT_GT(alone.dp.v, 0);

  const StepBreakdown tensor = predict("tp=8");
  EXPECT_GT(tensor.tp.v, 0);
  EXPECT_EQ(tensor.dp.v, 0);
  EXPECT_GT(predict("cp=8").cp.v, 0);
  EXPECT_GT(predict("pp=8").pipeline.v, 0);
  EXPECT_GT(predict("dp=8,recompute=full").recompute.v, 0);
}

TEST(Step, HugeStepsAreExtrapolatedExactly) {
  // Compares an estimate that plays only a few of many micro-batches with playing them all.
  const ModelSpec model = load_model("llama-3-8b").value();
  for (const char* text : {"pp=8", "pp=8,vp=4", "pp=8,schedule=zero_bubble", "pp=4,tp=2",
                           "pp=8,schedule=gpipe", "pp=1,dp=8"}) {
    const ParallelPlan plan = plan_of(text);
    const ClusterSpec cluster = cluster_named("1x8xH100-80GB-SXM");
    const std::int64_t micro_batches = plan.vp > 1 ? 4000 : 16'000;
    const StepModel step(model, cluster, 2048, plan.dp * micro_batches, CostOptions());
    const StepBreakdown b = step.predict(plan).breakdown;
    const Seconds pipeline = b.total() - b.dp - b.optimizer - b.overhead;
    EXPECT_LT(relative(pipeline, step.play(plan).timeline.total), 1e-4) << text;
  }
}

TEST(Step, LongPipelinesAndHugeBatchesAgreeWithTheLaw) {
  // With 64 stages and a million micro-batches the bubble vanishes: twice the batch takes twice as
  // long.
  const ModelSpec model = uniform_model(512, false);
  const ClusterSpec cluster = cluster_named("64x1xH100-80GB-SXM");
  const ParallelPlan plan = plan_of("pp=64");
  const StepModel half(model, cluster, 2048, 1 << 19, CostOptions());
  const StepModel whole(model, cluster, 2048, 1 << 20, CostOptions());
  EXPECT_NEAR(whole.predict(plan).time / half.predict(plan).time, 2, 2e-3);
  EXPECT_LT(relative(closed_form(whole, plan).time, whole.predict(plan).time), 2e-3);
}

TEST(Step, OutOfMemoryIsANumber) {
  const ModelSpec model = load_model("gpt3-175b").value();
  const ClusterSpec cluster = cluster_named("1x1xV100-16GB-SXM");
  CostOptions options;
  options.precision = Precision::kFp16;
  const StepModel step(model, cluster, 2048, 1024, options);
  ParallelPlan plan;
  plan.micro_batch = 1024;
  for (const StepEstimate& e : {step.predict(plan), closed_form(step, plan)}) {
    EXPECT_GT(e.memory.total(), step.capacity() * 100);
    EXPECT_TRUE(std::isfinite(e.memory.total().v));
    EXPECT_TRUE(std::isfinite(e.time.v));
    EXPECT_GT(e.time.v, 0);
  }
}

TEST(Step, MemoryFallsWithEveryShard) {
  const ModelSpec model = load_model("llama-3-70b").value();
  const ClusterSpec cluster = cluster_named("8x8xH100-80GB-SXM");
  const StepModel step(model, cluster, 4096, 128, CostOptions());
  auto memory = [&](const char* plan) { return step.predict(plan_of(plan)).memory.total().v; };
  EXPECT_GT(memory("dp=64"), memory("tp=2,dp=32"));
  EXPECT_GT(memory("tp=2,dp=32"), memory("tp=8,dp=8"));
  EXPECT_GT(memory("tp=8,dp=8"), memory("tp=8,sp=1,dp=8"));
  EXPECT_GT(memory("tp=8,dp=8"), memory("tp=8,pp=4,dp=2"));
  EXPECT_GT(memory("dp=64"), memory("dp=64,zero=1"));
  EXPECT_GT(memory("dp=64,zero=1"), memory("dp=64,zero=2"));
  EXPECT_GT(memory("dp=64,zero=2"), memory("dp=64,zero=3"));
  EXPECT_GT(memory("tp=8,dp=8"), memory("tp=8,dp=8,recompute=full"));
  EXPECT_GT(memory("tp=8,dp=8,micro_batch=2"), memory("tp=8,dp=8"));
}

// FSDP that gathers weights for every micro-batch of a pipeline (zero=3) against once a step
// (zero=1).
TEST(Step, ShardedWeightsInAPipelineTakeLessMemoryAndTrafficWithEveryMicroBatch) {
  const ModelSpec model = uniform_model(16, false);
  const ClusterSpec cluster = cluster_named("2x8xH100-80GB-SXM");
  const auto estimate = [&](const char* text, std::int64_t batch) {
    return StepModel(model, cluster, 4096, batch, CostOptions()).predict(plan_of(text));
  };
  const StepEstimate once = estimate("pp=2,dp=8,zero=1", 64);
  const StepEstimate each = estimate("pp=2,dp=8,zero=3", 64);
  EXPECT_LT(each.memory.weights, once.memory.weights);
  EXPECT_LT(each.memory.gradients, once.memory.gradients);
  EXPECT_LT(each.memory.total(), once.memory.total());
  EXPECT_GT(each.breakdown.dp, once.breakdown.dp);
  // Twice the micro-batches: twice the gathers, but still one reduction a step with zero=1.
  EXPECT_NEAR(estimate("pp=2,dp=8,zero=3", 128).breakdown.dp / each.breakdown.dp, 2, 0.01);
  EXPECT_NEAR(estimate("pp=2,dp=8,zero=1", 128).breakdown.dp / once.breakdown.dp, 1, 0.05);
}

TEST(Step, InterleavingShrinksTheBubbleAndHoldsMore) {
  const ModelSpec model = load_model("llama-3-70b").value();
  const ClusterSpec cluster = cluster_named("4x8xH100-80GB-SXM");
  const StepModel step(model, cluster, 4096, 16, CostOptions());
  const StepEstimate plain = step.predict(plan_of("tp=4,sp=1,pp=8"));
  const StepEstimate interleaved = step.predict(plan_of("tp=4,sp=1,pp=8,vp=5"));
  EXPECT_LT(interleaved.breakdown.pipeline, plain.breakdown.pipeline * 0.5);
  EXPECT_GT(interleaved.memory.activations, plain.memory.activations);
}

TEST(Step, AnInterleavedRankReducesEachChunkUnderTheNext) {
  const ModelSpec model = uniform_model(32, false);
  const ClusterSpec cluster = cluster_named("32x8xH100-80GB-SXM");
  CostOptions options;
  options.overlap_contention = 0;
  const auto exposed = [&](const std::string& plan) {
    const StepModel step(model, cluster, 4096, 64, options);  // as many micro-batches as stages
    return step.predict(plan_of(plan)).breakdown.dp;
  };
  const Seconds plain = exposed("dp=8,tp=4,pp=8,zero=1,sp=1");
  const Seconds interleaved = exposed("dp=8,tp=4,pp=8,vp=4,zero=1,sp=1");
  EXPECT_LT(interleaved, plain * 0.5);
  // The last bucket is always exposed.
  EXPECT_GT(interleaved, plain * 0.02);
}

TEST(Step, WeightsThatAreNotGatheredAheadAreWaitedFor) {
  const ModelSpec model = uniform_model(32, false);
  const ClusterSpec cluster = cluster_named("48x8xA100-80GB-SXM");
  const auto dp_time = [&](double prefetch, double gathers) {
    CostOptions options;
    options.weight_prefetch = prefetch;
    options.zero3_collectives = gathers;
    options.grad_overlap = GradOverlap::kNone;
    const StepModel step(model, cluster, 2048, 384, options);
    return step.predict(plan_of("dp=384,zero=3,recompute=full")).breakdown.dp;
  };
  const Seconds ahead = dp_time(1, 1), waited = dp_time(0, 1), each = dp_time(0, 12);
  EXPECT_GT(waited, ahead * 1.5);
  // Eleven more collectives for each of three passes over 32 layers, each with a ring's latency.
  const Seconds latency = cluster.network.latency * 383.0 + cluster.network.base_latency +
                          cluster.gpu.link_base_latency;
  EXPECT_NEAR((each - waited).v, (latency * (11.0 * 3 * 32)).v, 0.01 * each.v);
}

TEST(Step, GatheringTensorByTensorNeedsSmallerBuffers) {
  const ModelSpec model = uniform_model(32, false);
  const ClusterSpec cluster = cluster_named("8x8xA100-80GB-SXM");
  const auto buffers = [&](double collectives) {
    CostOptions options;
    options.zero3_collectives = collectives;
    const StepModel step(model, cluster, 2048, 64, options);
    return step.predict(plan_of("dp=64,zero=3,recompute=full")).memory.buffers;
  };
  const double matrix = real(model.hidden) * real(model.ffn);
  EXPECT_NEAR(buffers(12) / buffers(1), matrix / real(model.layer_params(0)), 1e-9);
}

TEST(Step, AStepGrowsWithTheBatchAndTheSequence) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = cluster_named("2x8xH100-80GB-SXM");
  Seconds before(0);
  for (const std::int64_t batch : {64, 128, 256, 1024}) {
    const Seconds time = StepModel(model, cluster, 2048, batch, CostOptions())
                             .predict(plan_of("tp=2,pp=2,dp=4"))
                             .time;
    EXPECT_GT(time.v, before.v) << batch;
    before = time;
  }
  before = Seconds(0);
  for (const std::int64_t seq_len : {128, 1024, 4096, 16'384}) {
    const Seconds time = StepModel(model, cluster, seq_len, 64, CostOptions())
                             .predict(plan_of("tp=2,pp=2,dp=4"))
                             .time;
    EXPECT_GT(time.v, before.v) << seq_len;
    before = time;
  }
}

TEST(Step, UtilisationAndThroughputFollowFromTheTime) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = cluster_named("2x8xH100-80GB-SXM");
  const StepModel step(model, cluster, 4096, 256, CostOptions());
  EXPECT_DOUBLE_EQ(step.tokens_per_s_per_gpu(Seconds(2)), 256.0 * 4096 / 2 / 16);
  const double flops = 3 * model.forward_flops_per_token(4096) * 256 * 4096;
  EXPECT_NEAR(step.mfu(Seconds(flops / (16 * cluster.gpu.peak_bf16.v))), 1, 1e-9);
  const StepEstimate e = step.predict(plan_of("dp=16,zero=1"));
  EXPECT_GT(step.mfu(e.time), 0.2);
  EXPECT_LT(step.mfu(e.time), 0.8);
}

TEST(Step, TiedEmbeddingsAreReducedBetweenTheEndsOfAPipeline) {
  ModelSpec model = load_model("llama-3.2-3b").value();
  const ClusterSpec cluster = cluster_named("1x8xH100-80GB-SXM");
  auto reduction = [&](bool tied, const char* plan) {
    model.tied_embeddings = tied;
    return StepModel(model, cluster, 2048, 64, CostOptions()).predict(plan_of(plan)).breakdown.dp;
  };
  EXPECT_GT(reduction(true, "pp=8"), reduction(false, "pp=8"));
  EXPECT_EQ(reduction(false, "pp=8").v, 0);
}

}  // namespace
}  // namespace copus
