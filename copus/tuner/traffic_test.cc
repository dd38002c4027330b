#include "copus/tuner/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "copus/spec/rank_grid.h"
#include "copus/tuner/traffic_testing.h"

namespace copus {
namespace {

constexpr double kTight = 1e-9;

void expect_close(double a, double b) { EXPECT_NEAR(a, b, kTight * std::max(1.0, std::abs(b))); }

// Returns the first GPU of the second pipeline stage, which has neither embedding nor head.
std::int64_t middle_gpu(const ParallelPlan& plan) { return plan.tp * plan.cp * plan.dp; }

TEST(TrafficTp, BytesOfAMiddleStageEqualTheClosedForm) {
  const TestJob job("gpt3-175b", "16x8xA100-80GB-SXM", 2048, 64, "tp=8,pp=4,dp=4,micro_batch=2");
  const double layers = 96.0 / 4;
  const double expected =
      layers * job.micro_batches() * 4 * 2 * (8.0 - 1) / 8 * job.activation_bytes();
  expect_close(sent(job.traffic(), middle_gpu(job.plan), Dimension::kTp), expected);
}

TEST(TrafficTp, FullRecomputeMakesSixAllReducesOfFour) {
  const TestJob none("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1");
  const TestJob full("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1,recompute=full");
  const TestJob some("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16,
                     "tp=8,pp=4,dp=1,recompute=selective");
  const double base = sent(none.traffic(), 8, Dimension::kTp);
  expect_close(sent(full.traffic(), 8, Dimension::kTp), base * 6 / 4);
  expect_close(sent(some.traffic(), 8, Dimension::kTp), base);
}

TEST(TrafficTp, SequenceParallelismGathersTwoInputsPerLayerAgain) {
  const TestJob plain("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1");
  const TestJob split("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1,sp=1");
  // Four all-reduces are eight ring passes. Two more gathers are two more passes.
  expect_close(sent(split.traffic(), 8, Dimension::kTp),
               sent(plain.traffic(), 8, Dimension::kTp) * 10 / 8);
}

TEST(TrafficTp, TheEndsAddOneAllReduceEachForEmbeddingAndHead) {
  const TestJob job("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1");
  const Traffic traffic = job.traffic();
  const double one = job.micro_batches() * 2 * 7.0 / 8 * job.activation_bytes();
  const double middle = sent(traffic, 8, Dimension::kTp);
  expect_close(sent(traffic, 0, Dimension::kTp), middle + one);
  expect_close(sent(traffic, 24, Dimension::kTp), middle + one);
}

TEST(TrafficDp, BytesFollowTheZeroStage) {
  auto bytes = [](int zero) {
    const TestJob job("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 32,
                      "tp=1,pp=1,dp=8,zero=" + std::to_string(zero));
    return sent(job.traffic(), 3, Dimension::kDp);
  };
  const auto params = static_cast<double>(load_model("llama-3-8b").value().total_params());
  const double micro_batches = 4;
  const double pass = 7.0 / 8 * params;
  expect_close(bytes(0), pass * 2 * 4);
  expect_close(bytes(1), pass * (4 + 2));
  expect_close(bytes(2), pass * (4 * micro_batches + 2));
  expect_close(bytes(3), pass * micro_batches * (2 + 2 + 4));
}

TEST(TrafficDp, ContextParallelRanksShareTheGradientRing) {
  const TestJob dp("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 32, "dp=8");
  const TestJob cp("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 32, "dp=4,cp=2");
  expect_close(sent(dp.traffic(), 0, Dimension::kDp), sent(cp.traffic(), 0, Dimension::kDp));
}

TEST(TrafficPp, EachEdgeCarriesEveryMicroBatchBothWays) {
  const TestJob job("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1");
  const Traffic traffic = job.traffic();
  const double edge = job.micro_batches() * job.activation_bytes();
  expect_close(sent(traffic, 0, Dimension::kPp), edge);
  expect_close(sent(traffic, 8, Dimension::kPp), 2 * edge);
  expect_close(sent(traffic, 24, Dimension::kPp), edge);
  const TestJob split("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16, "tp=8,pp=4,dp=1,sp=1");
  expect_close(sent(split.traffic(), 0, Dimension::kPp), edge / 8);
}

TEST(TrafficPp, VirtualStagesMultiplyTheMessagesAndCloseTheRing) {
  const TestJob job("gpt3-175b", "4x8xA100-80GB-SXM", 2048, 16,
                    "tp=8,pp=4,dp=1,vp=3,schedule=interleaved");
  const Traffic traffic = job.traffic();
  const double edge = job.micro_batches() * job.activation_bytes();
  expect_close(sent(traffic, 8, Dimension::kPp), 2 * 3 * edge);
  // The last rank sends to the first one between chunks: twice for three chunks per rank.
  const auto wrap = std::find_if(traffic.flows.begin(), traffic.flows.end(), [](const Flow& f) {
    return f.source == 24 && f.destination == 0 && f.dimension == Dimension::kPp;
  });
  ASSERT_NE(wrap, traffic.flows.end());
  expect_close(wrap->bytes.v, 2 * edge);
}

TEST(TrafficCp, KeysAndValuesGoRoundThreeTimes) {
  const TestJob job("llama-3-8b", "1x8xH100-80GB-SXM", 8192, 8, "cp=4,tp=2,dp=1");
  const double block =
      8192.0 / 4 * 2 * (8.0 / 2) * 128 * 2;  // tokens, k and v, heads, width, bytes
  expect_close(sent(job.traffic(), 0, Dimension::kCp), 32 * job.micro_batches() * 3 * 3 * block);
}

TEST(TrafficEmbedding, OnlyTheEndsOfATiedModelAddUpItsGradient) {
  const TestJob job("llama-3.2-1b", "1x8xH100-80GB-SXM", 2048, 16, "tp=2,pp=4,dp=1");
  const Traffic traffic = job.traffic();
  const double gradient = static_cast<double>(job.model.vocab * job.model.hidden) / 2 * 4;
  for (const std::int64_t gpu : {0, 1, 6, 7}) {
    expect_close(sent(traffic, gpu, Dimension::kEmbedding), gradient);
  }
  for (const std::int64_t gpu : {2, 3, 4, 5}) {
    expect_close(sent(traffic, gpu, Dimension::kEmbedding), 0);
  }
  const TestJob untied("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 16, "tp=2,pp=4,dp=1");
  expect_close(of(untied.traffic().totals(), Dimension::kEmbedding).v, 0);
}

TEST(TrafficMatrix, HasTheBlockStructureOfTheRankOrder) {
  const TestJob job("gpt3-175b", "8x8xA100-80GB-SXM", 2048, 64, "tp=4,pp=4,dp=4");
  for (const Flow& flow : job.traffic().flows) {
    const int distance = std::abs(flow.destination - flow.source);
    switch (flow.dimension) {
      case Dimension::kTp:  // blocks of tp on the diagonal
        EXPECT_EQ(flow.source / 4, flow.destination / 4);
        break;
      case Dimension::kDp:  // offsets of tp inside blocks of tp*dp
        EXPECT_EQ(flow.source / 16, flow.destination / 16);
        EXPECT_EQ(distance % 4, 0);
        break;
      case Dimension::kPp:  // the two diagonals at N/pp
        EXPECT_EQ(distance, 64 / 4);
        break;
      case Dimension::kEmbedding:  // first and last stage
        EXPECT_EQ(distance, 64 - 64 / 4);
        break;
      default:
        ADD_FAILURE() << to_string(flow.dimension);
    }
  }
}

TEST(TrafficMatrix, EveryFlowStaysInItsGroupAndEachGroupIsARing) {
  for (const char* text : {"tp=2,cp=2,pp=2,dp=4", "tp=1,cp=4,pp=4,dp=2", "tp=8,pp=1,dp=4",
                           "tp=2,cp=2,pp=2,dp=4,ep=4,sp=1", "tp=1,pp=1,dp=32,ep=8,zero=3",
                           "tp=4,pp=2,dp=4,ep=8,etp=1,sp=1"}) {
    const TestJob job("mixtral-8x7b", "4x8xH100-80GB-SXM", 4096, 64, text);
    const RankGrid grid(job.plan);
    std::map<std::pair<std::int64_t, Dimension>, int> targets;
    std::int64_t previous = -1;
    for (const Flow& flow : job.traffic().flows) {
      const Axis axis = flow.dimension == Dimension::kTp   ? Axis::kTp
                        : flow.dimension == Dimension::kCp ? Axis::kCp
                        : flow.dimension == Dimension::kEp ? Axis::kEp
                        : flow.dimension == Dimension::kPp ? Axis::kPp
                                                           : Axis::kDpCp;
      auto group = grid.group_of(flow.source, axis);
      if (flow.dimension == Dimension::kDp) {  // experts have replicas of their own
        const auto experts = grid.group_of(flow.source, Axis::kEdp);
        group.insert(group.end(), experts.begin(), experts.end());
      }
      EXPECT_NE(std::find(group.begin(), group.end(), flow.destination), group.end()) << text;
      EXPECT_NE(flow.source, flow.destination);
      EXPECT_GT(flow.bytes.v, 0);
      EXPECT_GE(flow.source, previous);
      previous = flow.source;
      ++targets[{flow.source, flow.dimension}];
    }
    for (const auto& [key, count] : targets) {
      const Dimension dimension = key.second;
      const bool ring = dimension == Dimension::kTp || dimension == Dimension::kCp;
      if (ring) {
        EXPECT_EQ(count, 1) << text;
      } else if (dimension == Dimension::kEp) {
        EXPECT_EQ(count, job.plan.ep - 1) << text;
      }
    }
  }
}

TEST(TrafficMatrix, TensorParallelismIsOver99PercentOfADenseLayout) {
  // ConfigTuner (arXiv 2512.24750) states this for dense models.
  const TestJob job("llama-2-70b", "32x8xA100-80GB-SXM", 4096, 1024, "tp=8,pp=4,dp=8,zero=1,sp=1");
  const Traffic traffic = job.traffic();
  EXPECT_GT(of(traffic.totals(), Dimension::kTp) / traffic.total(), 0.99);
}

TEST(TrafficMatrix, GroupingKeepsEveryByte) {
  const TestJob job("mixtral-8x7b", "4x8xH100-80GB-SXM", 4096, 64, "tp=2,pp=2,dp=8,ep=4,sp=1");
  const Traffic traffic = job.traffic();
  const Traffic nodes = grouped(traffic, 8);
  EXPECT_EQ(nodes.gpus, 4);
  EXPECT_LT(nodes.flows.size(), traffic.flows.size());
  for (const Dimension d : kAllDimensions) {
    expect_close(of(nodes.totals(), d).v, of(traffic.totals(), d).v);
  }
}

TEST(TrafficMoe, ABalancedGateSendsFourAllToAllsPerLayer) {
  const TestJob job("mixtral-8x7b", "2x8xH100-80GB-SXM", 4096, 64, "tp=2,pp=1,dp=8,ep=8,sp=1");
  const double buffer = 2 * job.activation_bytes() / 2;  // topk = 2; split over tp = 2
  const double expected = 32 * job.micro_batches() * 4 * 7.0 / 8 * buffer;
  for (std::int64_t gpu = 0; gpu < 16; ++gpu) {
    expect_close(sent(job.traffic(), gpu, Dimension::kEp), expected);
  }
}

TEST(TrafficMoe, CombineTransposesDispatchSoTheStepIsSymmetricAtAnySkew) {
  for (const double skew : {0.0, 0.7, 2.0}) {
    const TestJob job("qwen3-30b-a3b", "2x8xH100-80GB-SXM", 4096, 64, "pp=1,dp=16,ep=16");
    std::map<std::pair<int, int>, double> matrix;
    for (const Flow& f : job.traffic(skew).flows) {
      if (f.dimension == Dimension::kEp) matrix[{f.source, f.destination}] = f.bytes.v;
    }
    const std::vector<double> shares = expert_rank_shares(job.model.moe, 16, skew);
    const double buffer = 48 * job.micro_batches() * 8 * job.activation_bytes();
    const std::vector<double> dispatch = dispatch_matrix(shares, Bytes(buffer));
    for (const auto& [pair, bytes] : matrix) {
      expect_close((matrix[{pair.second, pair.first}]), bytes);
      const auto i = static_cast<std::size_t>(pair.first);
      const auto j = static_cast<std::size_t>(pair.second);
      // The forward and the backward pass each have a dispatch and its transpose.
      expect_close(bytes, 2 * (dispatch[i * 16 + j] + dispatch[j * 16 + i]));
    }
  }
}

// A cut expert's ranks gather and scatter the rows that they compute; uncut experts move no byte
// there, and their tokens travel over more ranks.
TEST(TrafficMoe, ExpertTensorParallelismMovesItsRowsTwicePerPass) {
  const char* cluster = "4x8xH100-80GB-SXM";
  const TestJob cut("mixtral-8x7b", cluster, 4096, 64, "tp=4,pp=1,dp=8,ep=8,sp=1");
  const TestJob uncut("mixtral-8x7b", cluster, 4096, 64, "tp=4,pp=1,dp=8,ep=8,etp=1,sp=1");
  const double rows = 2 * cut.activation_bytes();  // topk = 2 copies of every token
  const double expected = 32 * cut.micro_batches() * 4 * 3.0 / 4 * rows;
  expect_close(sent(cut.traffic(), 5, Dimension::kTp) - sent(uncut.traffic(), 5, Dimension::kTp),
               expected);
  expect_close(sent(cut.traffic(), 5, Dimension::kEp), sent(uncut.traffic(), 5, Dimension::kEp));
}

// The replicas of an expert are the ranks of a stage that remain after etp and ep.
TEST(TrafficMoe, GradientsOfExpertsAreReducedOverTheirOwnReplicas) {
  for (const char* text :
       {"tp=4,pp=1,dp=8,ep=8,sp=1", "tp=4,pp=1,dp=8,ep=8,etp=1,sp=1", "tp=4,pp=2,dp=4,ep=4,sp=1",
        "tp=4,pp=2,dp=4,ep=2,etp=2,sp=1", "tp=2,pp=1,cp=2,dp=8,ep=8,etp=1,sp=1"}) {
    const TestJob job("mixtral-8x7b", "4x8xH100-80GB-SXM", 4096, 64, text);
    const RankGrid grid(job.plan);
    const ShapeCosts costs = job.step->shape_costs(job.plan);
    const std::int64_t rank = 5;
    const RankParams params = job.step->params(
        job.plan, job.step->pieces_of_rank(job.plan, costs, grid.coordinates_of(rank).pp));
    const auto ring = [&](Axis axis, double count) {
      const auto n = static_cast<double>(grid.group_size(axis));
      return 2 * (n - 1) / n * count * 4;
    };
    expect_close(sent(job.traffic(), rank, Dimension::kDp),
                 ring(Axis::kDpCp, params.dense) + ring(Axis::kEdp, params.expert));
  }
}

// The flows add up to what the cost model prices, for both ways to dispatch, on one node and over
// several.
TEST(TrafficMoe, FlowsOfExpertsAddUpToTheCostModelsBytes) {
  for (const ExpertDispatch dispatch : {ExpertDispatch::kAllToAll, ExpertDispatch::kDeduplicated}) {
    CostOptions options;
    options.expert_dispatch = dispatch;
    for (const char* text :
         {"dp=32,ep=32", "dp=32,ep=8", "dp=32,ep=4", "tp=2,dp=16,ep=32,etp=1,sp=1",
          "tp=2,dp=16,ep=16,sp=1", "tp=2,cp=2,dp=8,ep=16,etp=1,sp=1"}) {
      const TestJob job("qwen3-30b-a3b", "4x8xH100-80GB-SXM", 4096, 64, text, options);
      const LayerShape shape = job.step->layer_shape(job.plan);
      const GroupPlace place = place_group(shape.ep, shape.etp, 8);
      const ExpertSends sends = expert_sends(job.model, options, shape, place);
      double inside = 0, outside = 0;
      const Traffic traffic = job.traffic();
      for (const Flow& flow : traffic.flows) {
        if (flow.dimension != Dimension::kEp) continue;
        (flow.source / 8 == flow.destination / 8 ? inside : outside) += flow.bytes.v;
      }
      // Two dispatches and two combines per layer and micro-batch, on 32 GPUs.
      const double times = 32 * 48 * job.micro_batches() * 4 * 2048 * 2;
      expect_close(inside / times, sends.inside);
      expect_close(outside / times, sends.outside);
    }
  }
}

TEST(TrafficMoe, SkewLoadsTheFirstExpertsUpToWhatATokenMaySend) {
  MoeSpec moe;
  moe.experts = 64;
  moe.experts_per_token = 8;
  double previous = 0;
  for (const double skew : {0.0, 0.5, 1.0, 3.0, kMaxSkew}) {
    const std::vector<double> shares = expert_rank_shares(moe, 64, skew);
    expect_close(std::accumulate(shares.begin(), shares.end(), 0.0), 1);
    EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend()));
    EXPECT_LE(shares[0], 1.0 / 8 + kTight);
    EXPECT_GE(shares[0], previous);
    previous = shares[0];
  }
  expect_close(expert_rank_shares(moe, 64, 0)[63], 1.0 / 64);
  expect_close(expert_rank_shares(moe, 64, kMaxSkew)[6], 1.0 / 8);
}

TEST(TrafficLinks, EveryByteCrossesTheLinksOfAGpuOrTheNetworkOfANode) {
  const TestJob job("gpt3-175b", "8x8xA100-80GB-SXM", 2048, 64, "tp=4,pp=4,dp=4");
  const Traffic traffic = job.traffic();
  const LinkLoads loads = link_loads(traffic, job.cluster);
  expect_close(loads.gpu_out.mean.v * 64 + loads.node_out.mean.v * 8, traffic.total().v);
  expect_close(loads.gpu_in.mean.v * 64 + loads.node_in.mean.v * 8, traffic.total().v);
  EXPECT_GE(loads.gpu_out.worst, loads.gpu_out.mean);
  expect_close(loads.node_out.time.v,
               loads.node_out.worst / job.cluster.network.node_bandwidth / Seconds(1));
}

TEST(TrafficLinks, OneNodeLoadsNoNetworkAndOneGpuSendsNothing) {
  const TestJob node("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 32, "tp=2,pp=2,dp=2");
  EXPECT_EQ(link_loads(node.traffic(), node.cluster).node_out.worst.v, 0);
  const TestJob gpu("llama-3.2-1b", "1x1xH100-80GB-SXM", 2048, 32, "tp=1,pp=1,dp=1");
  EXPECT_TRUE(gpu.traffic().flows.empty());
}

TEST(TrafficErrors, NameWhatIsWrong) {
  const TestJob job("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 32, "tp=2,pp=2,dp=3");
  const Result<Traffic> misfit = compute_traffic(*job.step, job.plan, 0);
  ASSERT_FALSE(misfit.has_value());
  EXPECT_NE(misfit.error().message.find("dp"), std::string::npos);
  const TestJob good("llama-3-8b", "1x8xH100-80GB-SXM", 2048, 32, "dp=8");
  for (const double skew : {-1.0, 11.0, std::nan("")}) {
    const Result<Traffic> refused = compute_traffic(*good.step, good.plan, skew);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("skew"), std::string::npos);
  }
}

TEST(TrafficOfStagesCutByWork, MovesBetweenStagesAndIsTheSameInAll) {
  const char* plan = "tp=2,pp=4,dp=4,sp=1,ep=4,zero=1";
  const TestJob layers("mixtral-8x7b", "4x8xA100-80GB-SXM", 2048, 64, plan);
  CostOptions options;
  options.stage_cut = StageCut::kWork;
  const TestJob work("mixtral-8x7b", "4x8xA100-80GB-SXM", 2048, 64, plan, options);
  const Traffic a = layers.traffic(), b = work.traffic();
  const DimensionBytes all_a = a.totals(), all_b = b.totals();
  for (const Dimension d : kAllDimensions) expect_close(of(all_b, d).v, of(all_a, d).v);
  // The head makes the last stage hold fewer layers.
  EXPECT_LT(sent(b, 24, Dimension::kTp), sent(a, 24, Dimension::kTp));
  EXPECT_GT(sent(b, 8, Dimension::kTp), sent(a, 8, Dimension::kTp));
}

}  // namespace
}  // namespace copus
