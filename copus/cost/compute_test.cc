#include "copus/cost/compute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

// An ideal GPU: it has its full rate at any shape, and only arithmetic takes time.
ClusterSpec ideal_cluster() {
  ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  cluster.gpu.efficiency = {1, 0, 0, 0, 1, 1, 1, Seconds(0)};
  cluster.gpu.memory_bandwidth = BytesPerSec(std::numeric_limits<double>::infinity());
  return cluster;
}

CostOptions ideal_options(AttentionKernel attention) {
  CostOptions options;
  options.attention = attention;
  options.host_layer_forward = options.host_layer_backward = options.host_routing = Seconds(0);
  return options;
}

// The heads and sequences are so large that attention kernels run at their asymptotic rate.
// Attention has as much work as the projections, so that an error in either one shows.
constexpr std::int64_t kLong = 1 << 20;
ModelSpec wide_model(const std::string& family) {
  ModelSpec model;
  model.family = family;
  model.layers = 5;
  model.heads = model.kv_heads = 4;
  model.head_dim = 1 << 16;
  model.hidden = model.heads * model.head_dim;
  model.ffn = 3 * model.hidden;
  model.vocab = 32'000;
  model.max_positions = kLong;
  if (family == "llama") {
    model.kv_heads = 2;
  } else if (family == "gpt2") {
    model.gated_mlp = false;
    model.tied_embeddings = model.dropout = true;
    model.qkv_bias = model.attention_out_bias = model.mlp_bias = true;
    model.norm = Norm::kLayerNorm;
    model.positions = Positions::kLearned;
  } else if (family == "mixtral") {
    model.moe.experts = 8;
    model.moe.experts_per_token = 2;
    model.moe.expert_ffn = model.hidden;
  } else if (family == "deepseek_v3") {
    model.moe = {16, 4, model.hidden / 2, 1, 2, true};
    model.mla = {true, model.hidden / 4, model.hidden / 8, 1 << 16, 1 << 15, 1 << 16};
  }
  return model;
}
constexpr const char* kFamilies[] = {"llama", "gpt2", "mixtral", "deepseek_v3"};

LayerShape shape_of(std::int64_t tp, std::int64_t seq_len, Recompute recompute = Recompute::kNone) {
  LayerShape shape;
  shape.tp = shape.etp = tp;
  shape.seq_len = seq_len;
  shape.recompute = recompute;
  return shape;
}

struct WholeModel {
  PieceTime forward, backward, recompute;
};
WholeModel sum_pieces(const ModelSpec& model, const LayerCosts& costs) {
  WholeModel sum;
  auto add = [&sum](double times, const PieceCost& piece) {
    sum.forward += times * piece.forward;
    sum.backward += times * (piece.backward_input + piece.backward_weight);
    sum.recompute += times * piece.recompute;
  };
  add(static_cast<double>(model.layers - model.moe_layers()), costs.dense);
  add(static_cast<double>(model.moe_layers()), costs.moe);
  add(1, costs.embedding);
  add(1, costs.head);
  return sum;
}

// Forward operations of the attention cores for one sequence, over the causal half.
double attention_flops(const ModelSpec& m, std::int64_t seq_len) {
  const std::int64_t dims = m.mla.enabled
                                ? m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim + m.mla.v_head_dim
                                : 2 * m.head_dim;
  return static_cast<double>(m.layers * m.heads * dims) * static_cast<double>(seq_len) *
         static_cast<double>(seq_len);
}

class IdealGpu : public ::testing::TestWithParam<const char*> {
 protected:
  WholeModel cost(AttentionKernel attention, const LayerShape& shape) const {
    const ClusterSpec cluster = ideal_cluster();
    const ComputeModel compute(model_, cluster, ideal_options(attention));
    return sum_pieces(model_, compute.layer_costs(shape));
  }
  double flops(Seconds time) const { return time.v * ideal_cluster().gpu.peak_bf16.v; }

  ModelSpec model_ = wide_model(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Families, IdealGpu, ::testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(IdealGpu, ForwardTimeIsTheModelsOperationsOverPeak) {
  const WholeModel fused = cost(AttentionKernel::kFused, shape_of(1, kLong));
  const double expected = model_.forward_flops_per_token(kLong) * static_cast<double>(kLong);
  EXPECT_NEAR(flops(fused.forward.compute) / expected, 1, 0.002);
  EXPECT_EQ(fused.forward.total(), fused.forward.compute) << "a single rank does not communicate";
}

TEST_P(IdealGpu, UnfusedAttentionComputesTheMaskedHalfToo) {
  const WholeModel fused = cost(AttentionKernel::kFused, shape_of(1, kLong));
  const WholeModel unfused = cost(AttentionKernel::kUnfused, shape_of(1, kLong));
  EXPECT_NEAR(
      flops(unfused.forward.compute - fused.forward.compute) / attention_flops(model_, kLong), 1,
      0.005);
}

TEST_P(IdealGpu, BackwardIsTwiceForwardAndFusedAttentionHalfAForwardMore) {
  const WholeModel unfused = cost(AttentionKernel::kUnfused, shape_of(1, kLong));
  EXPECT_NEAR(unfused.backward.compute / unfused.forward.compute, 2, 0.002);
  // Flash attention recomputes the scores: it has five products, the forward pass has two.
  const WholeModel fused = cost(AttentionKernel::kFused, shape_of(1, kLong));
  EXPECT_NEAR(
      flops(fused.backward.compute - 2 * fused.forward.compute) / attention_flops(model_, kLong),
      0.5, 0.005);
}

TEST_P(IdealGpu, SequenceParallelismDoesNotChangeTheOperationsExceptOfRouters) {
  LayerShape shape = shape_of(2, kLong);
  const WholeModel without = cost(AttentionKernel::kFused, shape);
  shape.sp = true;
  const WholeModel with = cost(AttentionKernel::kFused, shape);
  // Each rank routes its own tokens, half of them.
  const double router = static_cast<double>(model_.moe_layers()) * 2.0 * kLong / 2 *
                        static_cast<double>(model_.hidden) *
                        static_cast<double>(model_.moe.experts);
  EXPECT_NEAR(flops(with.forward.compute) / (flops(without.forward.compute) - router), 1, 1e-12);
  EXPECT_NEAR(flops(with.backward.compute) / (flops(without.backward.compute) - 2 * router), 1,
              1e-12);
}

TEST_P(IdealGpu, MoreTokensInAMicroBatchTakeProportionallyLonger) {
  LayerShape shape = shape_of(1, kLong);
  const WholeModel one = cost(AttentionKernel::kFused, shape);
  shape.micro_batch = 4;
  const WholeModel four = cost(AttentionKernel::kFused, shape);
  EXPECT_NEAR(four.forward.compute / one.forward.compute, 4, 1e-9);
  EXPECT_NEAR(four.backward.compute / one.backward.compute, 4, 1e-9);
}

constexpr double kWidths[] = {1,   2,   4,   8,   16,   32,   64,     96,    128,
                              200, 256, 384, 512, 1024, 4096, 16'384, 50'257};

TEST(Matmul, UtilisationRisesWithEveryDimension) {
  const ModelSpec model = load_model("llama-3-8b").value();
  for (const std::string& gpu : catalog_gpu_names()) {
    const ClusterSpec cluster = load_cluster("1x8x" + gpu).value();
    CostOptions options;
    if (cluster.gpu.peak_bf16.v <= 0) options.precision = Precision::kFp16;
    const ComputeModel compute(model, cluster, options);
    auto rate = [&](double m, double n, double k) { return m * n * k / compute.matmul(m, n, k).v; };
    for (const double m : kWidths) {
      for (const double n : kWidths) {
        for (const double k : kWidths) {
          const double here = rate(m, n, k) * (1 - 1e-12);
          ASSERT_GE(rate(2 * m, n, k), here) << gpu << ' ' << m << ' ' << n << ' ' << k;
          ASSERT_GE(rate(m, 2 * n, k), here) << gpu << ' ' << m << ' ' << n << ' ' << k;
          ASSERT_GE(rate(m, n, 2 * k), here) << gpu << ' ' << m << ' ' << n << ' ' << k;
        }
      }
    }
  }
}

TEST(Matmul, ASmallerProductNeverTakesLonger) {
  // Narrow products occur too: a router of eight experts, one token.
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  for (const double rest : {128.0, 1024.0, 8192.0}) {
    double m = 0, n = 0, k = 0;
    for (const double x : kWidths) {
      const double slack = 1 + 1e-9;
      ASSERT_GE(compute.matmul(x, rest, rest).v * slack, m) << "m = " << x << ", others " << rest;
      ASSERT_GE(compute.matmul(rest, x, rest).v * slack, n) << "n = " << x << ", others " << rest;
      ASSERT_GE(compute.matmul(rest, rest, x).v * slack, k) << "k = " << x << ", others " << rest;
      m = compute.matmul(x, rest, rest).v;
      n = compute.matmul(rest, x, rest).v;
      k = compute.matmul(rest, rest, x).v;
    }
  }
}

TEST(Matmul, IsBoundedByPeakByMemoryAndByItsLaunch) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("1x8xA100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  const double n = 16'384;
  EXPECT_GE(compute.matmul(n, n, n), Flops(2 * n * n * n) / cluster.gpu.peak_bf16);
  EXPECT_GE(compute.matmul(1, n, n), Bytes(2 * n * n) / cluster.gpu.memory_bandwidth);
  EXPECT_GE(compute.matmul(1, 1, 1), cluster.gpu.efficiency.launch);
  EXPECT_EQ(compute.matmul(0, n, n).v, 0);
  EXPECT_EQ(compute.matmul(n, n, n, 0).v, 0);
}

TEST(Layer, FullRecomputeAddsExactlyOneForward) {
  for (const char* name : {"gpt3-175b", "llama-3-70b", "mixtral-8x7b", "deepseek-v3", "tiny"}) {
    const ModelSpec model = load_model(name).value();
    const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
    const ComputeModel compute(model, cluster, CostOptions());
    LayerShape shape = shape_of(4, 1024);
    const LayerCosts none = compute.layer_costs(shape);
    shape.recompute = Recompute::kFull;
    const LayerCosts full = compute.layer_costs(shape);
    auto check = [&](const PieceCost& without, const PieceCost& with) {
      EXPECT_EQ(without.recompute.total().v, 0) << name;
      EXPECT_EQ(with.forward.total(), without.forward.total()) << name;
      EXPECT_DOUBLE_EQ((with.backward() + -1.0 * without.backward()).total().v,
                       without.forward.total().v)
          << name;
    };
    if (model.moe_layers() < model.layers) check(none.dense, full.dense);
    if (model.is_moe()) check(none.moe, full.moe);
    EXPECT_EQ(full.head.recompute.total().v, 0) << "logits are kept";
  }
}

TEST(Layer, SelectiveRecomputeRepeatsTheAttentionCoreAlone) {
  const ModelSpec model = load_model("gpt3-175b").value();
  const ClusterSpec cluster = load_cluster("1x8xA100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  const LayerCosts full = compute.layer_costs(shape_of(8, 2048, Recompute::kFull));
  const LayerCosts selective = compute.layer_costs(shape_of(8, 2048, Recompute::kSelective));
  EXPECT_GT(selective.dense.recompute.total().v, 0);
  EXPECT_LT(selective.dense.recompute.total(), full.dense.recompute.total() * 0.3);
  EXPECT_EQ(selective.dense.recompute.tp.v, 0);
}

TEST(Layer, TakesAtLeastTheTimeThatTheHostNeedsToIssueIt) {
  const ModelSpec model = load_model("tiny").value();
  const ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  CostOptions options;
  options.host_layer_forward = microseconds(1000);
  options.host_layer_backward = microseconds(3000);
  const ComputeModel compute(model, cluster, options);
  const PieceCost layer = compute.layer_costs(shape_of(1, 16, Recompute::kFull)).dense;
  EXPECT_DOUBLE_EQ(layer.forward.compute.v, 1e-3);
  EXPECT_NEAR((layer.backward_input.compute + layer.backward_weight.compute).v, 3e-3, 1e-12);
  EXPECT_GT(layer.backward_input.compute.v, 0);
  EXPECT_GT(layer.backward_weight.compute.v, 0);
  EXPECT_DOUBLE_EQ(layer.recompute.compute.v, 1e-3);
}

TEST(Layer, TheHostIssuesEveryExpertThatTheRankHolds) {
  const ModelSpec model = load_model("qwen3-30b-a3b").value();  // 128 experts
  const ClusterSpec cluster = load_cluster("4x8xH100-80GB-SXM").value();
  CostOptions options;
  options.host_layer_forward = options.host_layer_backward = microseconds(1000);
  options.host_expert = microseconds(500);
  const ComputeModel compute(model, cluster, options);
  LayerShape shape = shape_of(1, 16);
  for (const std::int64_t ep : {1, 8, 32}) {
    shape.ep = ep;
    const PieceCost layer = compute.layer_costs(shape).moe;
    const double host = 1e-3 + 128.0 / static_cast<double>(ep) * 500e-6;
    EXPECT_NEAR(layer.forward.total().v, host, 1e-9) << ep;
    EXPECT_NEAR(layer.backward().total().v, host, 1e-9) << ep;
  }
}

TEST(Layer, TheHostIsNoLimitToALargeOne) {
  const ModelSpec model = load_model("gpt3-175b").value();
  const ClusterSpec cluster = load_cluster("1x8xA100-80GB-SXM").value();
  CostOptions no_floor;
  no_floor.host_layer_forward = no_floor.host_layer_backward = Seconds(0);
  const PieceCost with =
      ComputeModel(model, cluster, CostOptions()).layer_costs(shape_of(1, 2048)).dense;
  const PieceCost without =
      ComputeModel(model, cluster, no_floor).layer_costs(shape_of(1, 2048)).dense;
  EXPECT_EQ(with.forward.compute, without.forward.compute);
  EXPECT_EQ(with.backward().compute, without.backward().compute);
}

TEST(Layer, MoreTensorParallelismIsLessComputeAndMoreTraffic) {
  const ModelSpec model = load_model("gpt3-175b").value();
  const ClusterSpec cluster = load_cluster("2x8xA100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  Seconds least(std::numeric_limits<double>::infinity()), most(-1);
  for (const std::int64_t tp : {1, 2, 4, 8, 16}) {
    const PieceTime forward = compute.layer_costs(shape_of(tp, 2048)).dense.forward;
    EXPECT_LT(forward.compute, least) << tp;
    EXPECT_GT(forward.tp, most) << tp;
    least = forward.compute;
    most = forward.tp;
  }
}

TEST(Layer, LongTransfersAreHiddenInANodeWithParallelSequencesOnGpusOfTransformerEngine) {
  const ModelSpec dense = load_model("llama-3-70b").value();
  const auto traffic = [&](const char* cluster_name, std::int64_t tp, bool sp, std::int64_t tokens,
                           double hidden) {
    const ClusterSpec cluster = load_cluster(cluster_name).value();
    CostOptions options;
    options.tp_overlap_te = hidden;
    LayerShape shape = shape_of(tp, tokens);
    shape.sp = sp;
    return ComputeModel(dense, cluster, options).layer_costs(shape).dense.forward.tp;
  };
  constexpr const char* kH100 = "2x8xH100-80GB-SXM";
  const Seconds exposed = traffic(kH100, 4, true, 8192, 0);
  const Seconds hidden = traffic(kH100, 4, true, 8192, 0.75);
  // Two regions of two collectives. Whole, each costs one skew; in pieces, one per rank.
  const Seconds skew = CostOptions().tp_skew;
  const Seconds transfer = exposed - skew * 4.0;
  EXPECT_NEAR(hidden.v, (transfer * 0.25 + skew * 16.0).v, 1e-9);
  EXPECT_LT(hidden, exposed * 0.75);
  EXPECT_EQ(traffic(kH100, 4, true, 512, 0.75), traffic(kH100, 4, true, 512, 0)) << "too short";
  EXPECT_EQ(traffic(kH100, 4, false, 8192, 0.75), traffic(kH100, 4, false, 8192, 0));
  EXPECT_EQ(traffic(kH100, 16, true, 8192, 0.75), traffic(kH100, 16, true, 8192, 0));
  constexpr const char* kA100 = "2x8xA100-80GB-SXM";
  EXPECT_EQ(traffic(kA100, 4, true, 8192, 0.75), traffic(kA100, 4, true, 8192, 0));
}

TEST(Layer, ExpertsTalkAcrossTheirGroupAlone) {
  const ModelSpec model = load_model("mixtral-8x7b").value();
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  LayerShape shape = shape_of(1, 4096);
  EXPECT_EQ(compute.layer_costs(shape).moe.forward.ep.v, 0);
  shape.ep = 8;
  const PieceCost layer = compute.layer_costs(shape).moe;
  EXPECT_GT(layer.forward.ep.v, 0);
  EXPECT_EQ(layer.forward.ep, layer.backward_input.ep) << "backward swaps dispatch and combine";
}

TEST(Layer, UncutExpertsGatherNothing) {
  const ModelSpec model = load_model("mixtral-8x7b").value();
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  LayerShape shape = shape_of(4, 4096);
  shape.sp = true;
  shape.etp = 4;
  const PieceCost cut = compute.layer_costs(shape).moe;
  shape.etp = 1;
  shape.ep = 4;
  const PieceCost uncut = compute.layer_costs(shape).moe;
  EXPECT_LT(uncut.forward.tp, cut.forward.tp);
  // The same operations and rows per expert in fewer, wider products: not slower.
  EXPECT_LE(uncut.forward.compute, cut.forward.compute);
  const ExpertRows rows = expert_rows(model, CostOptions(), shape);
  EXPECT_EQ(rows.sent, 4096.0 / 4 * 2);
  EXPECT_EQ(rows.computed, rows.sent);
  shape.etp = 4;
  EXPECT_EQ(expert_rows(model, CostOptions(), shape).computed, 4096.0 * 2);
}

// Chooses experts at random and counts the parts in which they lie.
TEST(PartsReached, AreThoseOfRandomChoices) {
  std::mt19937_64 random(1);
  for (const std::int64_t experts : {8, 64, 256}) {
    for (const std::int64_t topk : {1, 2, 8}) {
      for (const std::int64_t parts : {2, 8}) {
        MoeSpec moe;
        moe.experts = experts;
        moe.experts_per_token = topk;
        constexpr int kTokens = 4000;
        std::vector<std::int64_t> all(static_cast<std::size_t>(experts));
        std::iota(all.begin(), all.end(), 0);
        double sum = 0;
        for (int token = 0; token < kTokens; ++token) {
          std::vector<std::int64_t> chosen;
          std::sample(all.begin(), all.end(), std::back_inserter(chosen), topk, random);
          std::set<std::int64_t> reached;
          for (const std::int64_t e : chosen) reached.insert(e * parts / experts);
          sum += static_cast<double>(reached.size());
        }
        EXPECT_NEAR(parts_reached(moe, parts), sum / kTokens, 0.08)
            << experts << " " << topk << " " << parts;
      }
    }
  }
  // DeepSeek-V3 chooses experts from 4 of 8 groups.
  EXPECT_LE(parts_reached(load_model("deepseek-v3").value().moe, 8), 4);
}

TEST(Layer, SendingATokenOnceCostsNoMoreThanOnePerExpert) {
  const ModelSpec model = load_model("deepseek-v3").value();
  const ClusterSpec cluster = load_cluster("8x8xH100-80GB-SXM").value();
  CostOptions copies, once;
  once.expert_dispatch = ExpertDispatch::kDeduplicated;
  for (const std::int64_t ep : {1, 2, 8, 32, 64}) {
    LayerShape shape = shape_of(1, 4096);
    shape.ep = ep;
    const GroupPlace place = place_group(ep, 1, 8);
    const ExpertSends a = expert_sends(model, copies, shape, place);
    const ExpertSends b = expert_sends(model, once, shape, place);
    EXPECT_LE(b.outside, a.outside) << ep;
    const Seconds slow = ComputeModel(model, cluster, copies).layer_costs(shape).moe.forward.ep;
    const Seconds fast = ComputeModel(model, cluster, once).layer_costs(shape).moe.forward.ep;
    EXPECT_LE(fast, slow * (ep > 8 ? 0.6 : 1)) << ep;
    // Padded capacities are sent whole, whatever the dispatch.
    CostOptions padded = once;
    padded.expert_capacity = 1;
    EXPECT_EQ(expert_sends(model, padded, shape, place).outside, a.outside);
  }
}

TEST(Matmul, IntoGradientsReadsAndWritesThemAndIsOtherwiseTheSame) {
  const ModelSpec model = load_model("qwen3-30b-a3b").value();
  const ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  // Few rows: memory decides. FP32 gradients, read and written, are eight bytes; a result is two.
  const auto more = [&](double rows) {
    return compute.matmul_into_gradients(2048, 1536, rows, 16) -
           compute.matmul(2048, 1536, rows, 16);
  };
  const Seconds six_bytes = Bytes(6 * 2048.0 * 1536 * 16) /
                            (cluster.gpu.memory_bandwidth * cluster.gpu.efficiency.memory);
  EXPECT_NEAR(more(1) / six_bytes, 1, 0.5);
  EXPECT_GT(more(1), Seconds(0));
  EXPECT_EQ(more(100'000), Seconds(0)) << "many rows: arithmetic decides";
}

TEST(Layer, ImbalanceAndCapacityMultiplyTheRowsOfTheExperts) {
  const ModelSpec model = load_model("mixtral-8x7b").value();
  const ClusterSpec cluster = load_cluster("2x8xH100-80GB-SXM").value();
  LayerShape shape = shape_of(1, 4096);
  shape.ep = 8;
  CostOptions even, uneven, padded;
  uneven.expert_imbalance = 1.5;
  padded.expert_capacity = 1.5;
  EXPECT_EQ(expert_rows(model, uneven, shape).computed,
            1.5 * expert_rows(model, even, shape).computed);
  const PieceTime a = ComputeModel(model, cluster, even).layer_costs(shape).moe.forward;
  const PieceTime b = ComputeModel(model, cluster, uneven).layer_costs(shape).moe.forward;
  const PieceTime c = ComputeModel(model, cluster, padded).layer_costs(shape).moe.forward;
  EXPECT_GT(b.compute, a.compute);
  EXPECT_GT(b.ep, a.ep);
  EXPECT_EQ(c.ep, b.ep);
  // With a capacity the host knows the number of rows beforehand.
  EXPECT_NEAR((b.compute - c.compute).v, even.host_routing.v, 1e-12);
}

TEST(Layer, ContextParallelismSplitsTheTokens) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  const ComputeModel compute(model, cluster, CostOptions());
  LayerShape shape = shape_of(1, 65'536);
  const PieceCost whole = compute.layer_costs(shape).dense;
  shape.cp = 8;
  const PieceCost eighth = compute.layer_costs(shape).dense;
  EXPECT_EQ(whole.forward.cp.v, 0);
  EXPECT_GT(eighth.forward.cp.v, 0);
  EXPECT_NEAR(whole.forward.compute / eighth.forward.compute, 8, 0.5);
}

TEST(Precision, Fp8SpeedsTheLayersButNotTheHead) {
  const ModelSpec model = load_model("llama-3-70b").value();
  const ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  CostOptions fp8;
  fp8.precision = Precision::kFp8;
  const LayerCosts wide =
      ComputeModel(model, cluster, CostOptions()).layer_costs(shape_of(1, 8192));
  const LayerCosts narrow = ComputeModel(model, cluster, fp8).layer_costs(shape_of(1, 8192));
  EXPECT_LT(narrow.dense.forward.compute, wide.dense.forward.compute * 0.75);
  EXPECT_GE(narrow.head.forward.compute, wide.head.forward.compute * 0.99);
}

TEST(Precision, QuantisingCostsWhatItsPassesMove) {
  const ClusterSpec cluster = load_cluster("1x8xB200").value();
  const auto bytes = [&](Precision precision) {
    CostOptions options;
    options.precision = precision;
    const ModelSpec model = load_model("llama-3-8b").value();
    const Seconds time = ComputeModel(model, cluster, options).quantise(1e9);
    const GpuSpec& gpu = cluster.gpu;
    const Seconds moving = time - gpu.efficiency.launch;
    return time.v > 0 ? moving.v * gpu.memory_bandwidth.v * gpu.efficiency.memory / 1e9 : 0;
  };
  EXPECT_EQ(bytes(Precision::kBf16), 0);
  EXPECT_NEAR(bytes(Precision::kFp8), 2 + 2 * 1, 1e-6);
  EXPECT_NEAR(bytes(Precision::kFp8Current), 2 + 2 + 2 * 1, 1e-6);
  EXPECT_NEAR(bytes(Precision::kMxfp8), 2 + 2 * (1 + 1.0 / 32), 1e-6);
  EXPECT_NEAR(bytes(Precision::kNvfp4), 2 + 2 + 2 * (0.5 + 1.0 / 16), 1e-6);
}

TEST(Precision, FasterUnitsNeedDeeperProducts) {
  const ModelSpec model = load_model("llama-3-8b").value();
  const ClusterSpec cluster = load_cluster("1x8xH100-80GB-SXM").value();
  CostOptions fp8;
  fp8.precision = Precision::kFp8;
  const ComputeModel narrow(model, cluster, fp8), wide(model, cluster, CostOptions());
  const auto gain = [&](double depth) {
    return wide.matmul(16'384, 16'384, depth) / narrow.matmul(16'384, 16'384, depth);
  };
  EXPECT_NEAR(gain(1 << 16), 2, 0.02);
  EXPECT_LT(gain(1024), 1.75);
  EXPECT_NEAR(narrow.matmul(8192, 8192, 8192, 1, true).v, wide.matmul(8192, 8192, 8192).v, 1e-12)
      << "a wide product is BF16's";
}

TEST(Attention, IsFusedWhereTheGpuHasAKernelWithDropoutToo) {
  const ModelSpec gpt = load_model("gpt3-175b").value();
  const ClusterSpec a100 = load_cluster("1x8xA100-80GB-SXM").value();
  const ClusterSpec v100 = load_cluster("1x8xV100-16GB-SXM").value();
  CostOptions fp16;
  fp16.precision = Precision::kFp16;
  EXPECT_TRUE(gpt.dropout);
  EXPECT_TRUE(ComputeModel(gpt, a100, fp16).fused_attention());
  EXPECT_FALSE(ComputeModel(gpt, v100, fp16).fused_attention());
  fp16.attention = AttentionKernel::kFused;
  EXPECT_TRUE(ComputeModel(gpt, v100, fp16).fused_attention());
  fp16.attention = AttentionKernel::kUnfused;
  EXPECT_FALSE(ComputeModel(gpt, a100, fp16).fused_attention());
}

}  // namespace
}  // namespace copus
