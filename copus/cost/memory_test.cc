#include "copus/cost/memory.h"

#include <gtest/gtest.h>

#include <string>

#include "copus/spec/hf_config.h"

namespace copus {
namespace {

// The GPT of Korthikanti et al. 2022 (arXiv 2205.05198): four-fold MLP, dropout, unfused attention.
struct Gpt {
  double s = 2048, b = 4, h = 6144, a = 64;  // the 22B model of their table 3

  ModelSpec spec() const {
    ModelSpec model;
    model.family = "gpt2";
    model.layers = 48;
    model.hidden = static_cast<std::int64_t>(h);
    model.ffn = 4 * model.hidden;
    model.heads = model.kv_heads = static_cast<std::int64_t>(a);
    model.head_dim = model.hidden / model.heads;
    model.vocab = 51'200;
    model.gated_mlp = false;
    model.dropout = true;
    return model;
  }
  LayerShape shape(std::int64_t tp, bool sp, Recompute recompute) const {
    LayerShape shape;
    shape.tp = tp;
    shape.sp = sp;
    shape.recompute = recompute;
    shape.micro_batch = static_cast<std::int64_t>(b);
    shape.seq_len = static_cast<std::int64_t>(s);
    return shape;
  }
  double layer_bytes(std::int64_t tp, bool sp, Recompute recompute) const {
    return activation_bytes(spec(), CostOptions(), false, shape(tp, sp, recompute)).dense.v;
  }
  double sbh() const { return s * b * h; }
};

TEST(Activations, OfALayerFollowEquation1) {
  const Gpt g;
  EXPECT_DOUBLE_EQ(g.layer_bytes(1, false, Recompute::kNone), g.sbh() * (34 + 5 * g.a * g.s / g.h));
}

TEST(Activations, DropoutOfTheAttentionAloneKeepsItsMaskAndItsResultUnlessFused) {
  const Gpt g;
  ModelSpec without = g.spec();
  without.dropout = false;
  ModelSpec with = without;
  with.attention_dropout = 0.1;
  const auto bytes = [&](const ModelSpec& model, bool fused) {
    return activation_bytes(model, CostOptions(), fused, g.shape(1, false, Recompute::kNone)).dense;
  };
  EXPECT_DOUBLE_EQ((bytes(with, false) - bytes(without, false)).v, 3 * g.a * g.s * g.s * g.b);
  EXPECT_EQ(bytes(with, true).v, bytes(without, true).v);
}

TEST(Activations, WithTensorParallelismFollowEquation2) {
  const Gpt g;
  for (const std::int64_t t : {2, 4, 8}) {
    const auto n = static_cast<double>(t);
    EXPECT_DOUBLE_EQ(g.layer_bytes(t, false, Recompute::kNone),
                     g.sbh() * (10 + 24 / n + 5 * g.a * g.s / (g.h * n)));
  }
}

TEST(Activations, WithSequenceParallelismFollowEquation4) {
  const Gpt g;
  for (const std::int64_t t : {2, 4, 8}) {
    EXPECT_DOUBLE_EQ(g.layer_bytes(t, true, Recompute::kNone),
                     g.sbh() / static_cast<double>(t) * (34 + 5 * g.a * g.s / g.h));
  }
}

TEST(Activations, SelectiveRecomputeRemovesTheQuadraticTerm) {
  // Equation 6 of the paper: 34 sbh / t.
  const Gpt g;
  EXPECT_DOUBLE_EQ(g.layer_bytes(8, true, Recompute::kSelective), g.sbh() * 34 / 8);
  EXPECT_DOUBLE_EQ(g.layer_bytes(8, false, Recompute::kSelective), g.sbh() * (10 + 24.0 / 8));
}

TEST(Activations, FullRecomputeKeepsTheInputOfALayer) {
  const Gpt g;
  EXPECT_DOUBLE_EQ(g.layer_bytes(1, false, Recompute::kFull), 2 * g.sbh());
  EXPECT_DOUBLE_EQ(g.layer_bytes(8, false, Recompute::kFull), 2 * g.sbh());
  EXPECT_DOUBLE_EQ(g.layer_bytes(8, true, Recompute::kFull), 2 * g.sbh() / 8);
  // While one layer's backward pass runs, that layer's recomputed activations are there again.
  const ActivationBytes full =
      activation_bytes(g.spec(), CostOptions(), false, g.shape(8, true, Recompute::kFull));
  EXPECT_GE(full.working.v, g.sbh() / 8 * 34);
}

TEST(Activations, FusedAttentionStoresNoScores) {
  const Gpt g;
  const LayerShape shape = g.shape(1, false, Recompute::kNone);
  const Bytes fused = activation_bytes(g.spec(), CostOptions(), true, shape).dense;
  EXPECT_GE(fused.v, 34 * g.sbh());
  EXPECT_LT(fused.v, 34.2 * g.sbh());
}

constexpr const char* kModels[] = {"gpt2-xl",      "gpt3-175b",     "llama-3-70b",
                                   "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"};
constexpr Recompute kRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

Bytes all_of(const ActivationBytes& a) {
  return a.dense + a.moe + a.embedding + a.head + a.working;
}

TEST(Activations, GrowWithTheMicroBatchAndTheSequence) {
  for (const char* name : kModels) {
    const ModelSpec model = load_model(name).value();
    for (const bool fused : {false, true}) {
      for (const Recompute recompute : kRecomputes) {
        LayerShape shape;
        shape.recompute = recompute;
        shape.seq_len = 1024;
        Bytes before(0);
        for (const std::int64_t b : {1, 2, 3, 4, 8, 16}) {
          shape.micro_batch = b;
          const Bytes now = all_of(activation_bytes(model, CostOptions(), fused, shape));
          EXPECT_GT(now, before) << name << " micro-batch " << b;
          before = now;
        }
        shape.seq_len = 2048;
        EXPECT_GT(all_of(activation_bytes(model, CostOptions(), fused, shape)), before) << name;
      }
    }
  }
}

TEST(Activations, FallWithEveryWayToSplitThem) {
  for (const char* name : kModels) {
    const ModelSpec model = load_model(name).value();
    for (const Recompute recompute : kRecomputes) {
      LayerShape shape;
      shape.recompute = recompute;
      shape.seq_len = 4096;
      Bytes no_sp = all_of(activation_bytes(model, CostOptions(), true, shape)), with_sp = no_sp,
            cp = no_sp;
      for (const std::int64_t n : {2, 4, 8}) {
        shape.tp = n;
        const Bytes tp = all_of(activation_bytes(model, CostOptions(), true, shape));
        EXPECT_LT(tp, no_sp) << name << " tp " << n;
        no_sp = tp;
        shape.sp = true;
        const Bytes sp = all_of(activation_bytes(model, CostOptions(), true, shape));
        EXPECT_LT(sp, with_sp) << name << " tp " << n << " with sp";
        EXPECT_LT(sp, tp) << name << " tp " << n;
        with_sp = sp;
        shape.sp = false;
        shape.tp = 1;
        shape.cp = n;
        const Bytes context = all_of(activation_bytes(model, CostOptions(), true, shape));
        EXPECT_LT(context, cp) << name << " cp " << n;
        cp = context;
        shape.cp = 1;
      }
    }
  }
}

TEST(Activations, LessIsKeptTheMoreIsRecomputed) {
  for (const char* name : kModels) {
    const ModelSpec model = load_model(name).value();
    LayerShape shape;
    shape.seq_len = 1024;
    Bytes kept[3];
    for (const Recompute recompute : kRecomputes) {
      shape.recompute = recompute;
      const ActivationBytes a = activation_bytes(model, CostOptions(), false, shape);
      kept[static_cast<int>(recompute)] = model.is_moe() ? a.moe : a.dense;
    }
    EXPECT_GT(kept[0], kept[1]) << name;
    EXPECT_GT(kept[1], kept[2]) << name;
  }
}

constexpr RankParams kDense{1e9, 0};

TEST(State, IsEighteenBytesPerParameterForMixedPrecisionAdam) {
  // Weights 2, FP32 gradients 4, FP32 master weights and two moments 12.
  ParallelPlan plan;
  plan.dp = 8;
  const MemoryBreakdown m = state_memory(CostOptions(), plan, kDense, 0);
  EXPECT_DOUBLE_EQ(m.weights.v, 2e9);
  EXPECT_DOUBLE_EQ(m.gradients.v, 4e9);
  EXPECT_DOUBLE_EQ(m.optimizer.v, 12e9);
  EXPECT_DOUBLE_EQ(m.total().v, 18e9);
}

TEST(State, IsSixteenBytesPerParameterInFp32AndFp16) {
  ParallelPlan plan;
  CostOptions options;
  options.precision = Precision::kFp32;  // no master copy of the weights
  EXPECT_DOUBLE_EQ(state_memory(options, plan, kDense, 0).total().v, 16e9);
  options.precision = Precision::kFp16;  // FP16 gradients
  EXPECT_DOUBLE_EQ(state_memory(options, plan, kDense, 0).total().v, 16e9);
}

TEST(State, EveryZeroStageShardsOneTermMore) {
  ParallelPlan plan;
  plan.dp = 4;
  plan.cp = 2;  // sharded over dp*cp = 8
  const MemoryBreakdown whole = state_memory(CostOptions(), plan, kDense, 0);
  for (plan.zero = 0; plan.zero <= 3; ++plan.zero) {
    const MemoryBreakdown m = state_memory(CostOptions(), plan, kDense, 0);
    EXPECT_DOUBLE_EQ(m.optimizer.v, whole.optimizer.v / (plan.zero >= 1 ? 8 : 1)) << plan.zero;
    EXPECT_DOUBLE_EQ(m.gradients.v, whole.gradients.v / (plan.zero >= 2 ? 8 : 1)) << plan.zero;
    EXPECT_DOUBLE_EQ(m.weights.v, whole.weights.v / (plan.zero >= 3 ? 8 : 1)) << plan.zero;
  }
}

TEST(State, ExpertsAreShardedOverTheReplicasThatHoldThem) {
  ParallelPlan plan;
  plan.dp = 16;
  plan.ep = 4;
  plan.zero = 1;
  const MemoryBreakdown m = state_memory(CostOptions(), plan, {1e9, 8e9}, 0);
  EXPECT_DOUBLE_EQ(m.optimizer.v, 12 * (1e9 / 16 + 8e9 / 4));
  // Experts that tp does not cut have the tp ranks as replicas too.
  plan.tp = 2;
  EXPECT_DOUBLE_EQ(state_memory(CostOptions(), plan, {1e9, 8e9}, 0).optimizer.v, m.optimizer.v);
  plan.etp = 1;
  EXPECT_DOUBLE_EQ(state_memory(CostOptions(), plan, {1e9, 8e9}, 0).optimizer.v,
                   12 * (1e9 / 16 + 8e9 / 8));
}

TEST(State, ReductionBucketsAreThereWhereGradientsAreReduced) {
  CostOptions options;
  options.extra_state_bytes = 2;
  ParallelPlan plan;
  EXPECT_EQ(state_memory(options, plan, kDense, 0).buffers.v, 0);
  plan.dp = 2;
  EXPECT_DOUBLE_EQ(state_memory(options, plan, kDense, 0).buffers.v, 2e9);
}

TEST(State, StageThreeGathersALayerWhole) {
  ParallelPlan plan;
  plan.dp = 8;
  plan.zero = 3;
  const MemoryBreakdown small = state_memory(CostOptions(), plan, kDense, 1e8);
  const MemoryBreakdown large = state_memory(CostOptions(), plan, kDense, 2e8);
  EXPECT_GT(small.buffers.v, 2e8);
  EXPECT_GT(large.buffers, small.buffers);
  plan.zero = 0;
  EXPECT_EQ(state_memory(CostOptions(), plan, kDense, 1e8).buffers.v, 0);
}

TEST(Activations, QuantisedInputsOfLinearLayersAreSmaller) {
  const ModelSpec model = load_model("llama-3-8b").value();
  CostOptions options;
  LayerShape shape;
  shape.seq_len = 4096;
  const auto dense = [&](Precision precision, double bytes) {
    options.precision = precision;
    options.quantised_input_bytes = bytes;
    return activation_bytes(model, options, true, shape).dense.v;
  };
  EXPECT_EQ(dense(Precision::kFp8, 2), dense(Precision::kBf16, 1));
  // The outputs of both norms, and the input of the MLP's second product.
  EXPECT_NEAR(dense(Precision::kFp8, 2) - dense(Precision::kFp8, 1), 4096.0 * (2 * 4096 + 14'336),
              1);
}

}  // namespace
}  // namespace copus
