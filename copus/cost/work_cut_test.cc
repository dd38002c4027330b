#include "copus/cost/work_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "copus/cost/step.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

Seconds work_of(const ModelWork& model, const LayerShare& share, bool first, bool last) {
  return share.dense_layers * model.dense_layer + share.moe_layers * model.moe_layer +
         (first ? model.embedding : Seconds(0)) + (last ? model.head : Seconds(0));
}

ModelWork draw(std::mt19937& random, double largest_end) {
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto layers = [&](int most) {
    return static_cast<double>(std::uniform_int_distribution<int>(0, most)(random));
  };
  ModelWork model;
  model.dense_layers = layers(40) + 1;
  model.moe_layers = layers(1) * layers(60);
  model.dense_layer = Seconds(between(0.5, 2));
  model.moe_layer = Seconds(between(0.5, 2));
  model.embedding = Seconds(between(0, largest_end));
  model.head = Seconds(between(0, largest_end));
  return model;
}

TEST(WorkCut, NoLayerIsLostAndNoneIsNegative) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const ModelWork model = draw(random, 30);
    const std::int64_t chunks = std::uniform_int_distribution<std::int64_t>(1, 64)(random);
    LayerShare sum;
    for (std::int64_t c = 0; c < chunks; ++c) {
      const LayerShare share = cut_by_work(model, chunks, c);
      ASSERT_GE(share.dense_layers, 0);
      ASSERT_GE(share.moe_layers, 0);
      sum.dense_layers += share.dense_layers;
      sum.moe_layers += share.moe_layers;
    }
    ASSERT_NEAR(sum.dense_layers, model.dense_layers, 1e-9);
    ASSERT_NEAR(sum.moe_layers, model.moe_layers, 1e-9);
  }
}

TEST(WorkCut, ChunksTakeTheSameTimeWhereNoEndIsMoreThanItsShare) {
  std::mt19937 random(8);
  for (int i = 0; i < 2000; ++i) {
    const ModelWork model = draw(random, 0.5);
    const std::int64_t most = static_cast<std::int64_t>(model.dense_layers + model.moe_layers) / 2;
    const std::int64_t chunks =
        std::uniform_int_distribution<std::int64_t>(1, std::max<std::int64_t>(1, most))(random);
    const Seconds each =
        work_of(model, {model.dense_layers, model.moe_layers}, true, true) / real(chunks);
    for (std::int64_t c = 0; c < chunks; ++c) {
      const LayerShare share = cut_by_work(model, chunks, c);
      ASSERT_NEAR(work_of(model, share, c == 0, c == chunks - 1) / each, 1, 1e-9);
    }
  }
}

TEST(WorkCut, AnEndThatIsMoreThanItsShareIsAlone) {
  const auto layers = [](Seconds embedding, Seconds head) {
    const ModelWork model{embedding, 12, Seconds(1), 0, Seconds(0), head};
    std::vector<double> each;
    for (std::int64_t c = 0; c < 4; ++c) each.push_back(cut_by_work(model, 4, c).dense_layers);
    return each;
  };
  EXPECT_EQ(layers(Seconds(0), Seconds(4)), (std::vector<double>{4, 4, 4, 0}));
  EXPECT_EQ(layers(Seconds(0), Seconds(20)), (std::vector<double>{4, 4, 4, 0}));
  EXPECT_EQ(layers(Seconds(20), Seconds(0)), (std::vector<double>{0, 4, 4, 4}));
  EXPECT_EQ(layers(Seconds(20), Seconds(30)), (std::vector<double>{0, 6, 6, 0}));
  // The head is below an equal share of all work, but above the share that is left when the
  // embedding has its own chunk.
  EXPECT_EQ(layers(Seconds(20), Seconds(7)), (std::vector<double>{0, 6, 6, 0}));
}

TEST(WorkCut, LeadingDenseLayersAreInTheFirstChunks) {
  // 2 dense layers of 1 s and 4 with experts of 2 s take 10 s, so each of two chunks takes 5 s.
  const ModelWork model{Seconds(0), 2, Seconds(1), 4, Seconds(2), Seconds(0)};
  const LayerShare first = cut_by_work(model, 2, 0), second = cut_by_work(model, 2, 1);
  EXPECT_DOUBLE_EQ(first.dense_layers, 2);
  EXPECT_DOUBLE_EQ(first.moe_layers, 1.5);
  EXPECT_DOUBLE_EQ(second.dense_layers, 0);
  EXPECT_DOUBLE_EQ(second.moe_layers, 2.5);
}

// A job whose stages the engine cuts by work or between layers.
struct CutJob {
  ModelSpec model;
  ClusterSpec cluster;
  ParallelPlan plan;
  std::int64_t global_batch;
  CostOptions options;

  CutJob(const std::string& name, const std::string& cluster_name, std::int64_t batch,
         const std::string& plan_text, StageCut cut)
      : model(load_model(name).value()),
        cluster(load_cluster(cluster_name).value()),
        plan(parse_plan_text(plan_text, "--plan").value().plan),
        global_batch(batch) {
    options.stage_cut = cut;
  }
  StepModel step() const { return {model, cluster, 2048, global_batch, options}; }
  StepEstimate predict() const { return step().predict(plan); }
  StepEstimate closed_form() const {
    const StepModel priced = step();
    return priced.closed_form(plan, priced.shape_costs(plan), priced.unsplit(plan.pp * plan.vp));
  }
};

// With vocabularies of 128,000 and more the last stage is far from equal if cut between layers.
TEST(StageCut, ByWorkStagesAreEqualSoThatClosedFormAndTimelineAgree) {
  for (const char* name : {"llama-3.2-3b", "llama-3-8b", "qwen-2.5-7b", "mixtral-8x7b"}) {
    for (const char* plan : {"pp=4,dp=8", "pp=2,dp=16,zero=1", "pp=4,dp=2,tp=4,sp=1,zero=1",
                             "pp=4,dp=8,schedule=gpipe", "pp=4,dp=8,schedule=zero_bubble"}) {
      const CutJob job(name, "4x8xA100-80GB-SXM", 256, plan, StageCut::kWork);
      const Seconds fast = job.closed_form().time, exact = job.predict().time;
      EXPECT_NEAR(fast / exact, 1, 1e-3) << name << ' ' << plan;
    }
  }
}

TEST(StageCut, ByWorkThePipelineTakesFillAndSteadyStateOfTheMeanStage) {
  CutJob job("llama-3.2-3b", "1x8xA100-80GB-SXM", 64, "pp=4,dp=2", StageCut::kWork);
  job.options.pp_overlap = 1;  // messages between stages cost nothing
  const StepModel step = job.step();
  const ShapeCosts costs = step.shape_costs(job.plan);
  const auto time = [](const PieceCost& p) { return (p.forward + p.backward()).total(); };
  const Seconds whole = real(job.model.layers) * time(costs.time.dense) +
                        time(costs.time.embedding) + time(costs.time.head);
  const double m = real(job.plan.micro_batches(job.global_batch));
  const StepBreakdown b = step.predict(job.plan).breakdown;
  // Stages differ in the ratio of forward to backward, because the head's differs from a layer's.
  EXPECT_NEAR((b.compute + b.pipeline) / (whole / 4 * (m + 3)), 1, 0.01);
}

TEST(StageCut, ByWorkIsFasterThanBetweenLayersWhereManyMicroBatchesWaitForTheHead) {
  for (const char* name : {"gpt2-xl", "llama-3.2-3b", "llama-3-8b", "qwen-2.5-7b"}) {
    for (const char* plan : {"pp=2,dp=4", "pp=4,dp=2", "pp=4,dp=2,vp=2,micro_batch=2"}) {
      const CutJob layers(name, "1x8xA100-80GB-SXM", 64, plan, StageCut::kLayers);
      const CutJob work(name, "1x8xA100-80GB-SXM", 64, plan, StageCut::kWork);
      EXPECT_LT(work.predict().time, layers.predict().time) << name << ' ' << plan;
    }
  }
}

TEST(StageCut, ByWorkLeavesASplitThatThePlanStates) {
  for (const char* plan : {"pp=4,dp=2,split=8-7-7-6", "pp=4,dp=2,split=7-7-7-7"}) {
    const CutJob layers("llama-3.2-3b", "1x8xA100-80GB-SXM", 64, plan, StageCut::kLayers);
    const CutJob work("llama-3.2-3b", "1x8xA100-80GB-SXM", 64, plan, StageCut::kWork);
    EXPECT_EQ(work.predict().time.v, layers.predict().time.v) << plan;
    EXPECT_EQ(work.predict().memory.total().v, layers.predict().memory.total().v) << plan;
  }
}

TEST(StageCut, ByWorkNoParameterIsLost) {
  for (const char* name : {"llama-3-8b", "deepseek-v3", "qwen3-30b-a3b"}) {
    const auto parameters = [&](StageCut cut, const char* plan) {
      const CutJob job(name, "4x8xH100-80GB-SXM", 64, plan, cut);
      const StepModel step = job.step();
      const ShapeCosts costs = step.shape_costs(job.plan);
      double sum = 0;
      for (std::int64_t rank = 0; rank < job.plan.pp; ++rank)
        sum += step.params(job.plan, step.pieces_of_rank(job.plan, costs, rank)).total();
      return sum;
    };
    const double whole = parameters(StageCut::kLayers, "pp=1,dp=32");
    for (const char* plan : {"pp=4,dp=8", "pp=8,dp=4", "pp=4,vp=2,dp=8"})
      EXPECT_NEAR(parameters(StageCut::kWork, plan) / whole, 1, 1e-9) << name << ' ' << plan;
  }
}

// No number of stages divides DeepSeek-V3's 61 layers. Three of them are dense.
TEST(StageCut, ByWorkTheClosedFormSeesTheRankThatNeedsMostMemory) {
  for (const char* plan : {"pp=4,dp=8,ep=8", "pp=8,dp=4,ep=4", "pp=16,dp=2,ep=2",
                           "pp=4,vp=2,dp=8,ep=8", "pp=4,vp=4,dp=8,ep=8", "pp=8,vp=4,dp=4,ep=4"}) {
    const CutJob job("deepseek-v3", "4x8xH100-80GB-SXM", 512, plan, StageCut::kWork);
    ASSERT_TRUE(job.step().validate(job.plan).has_value()) << plan;
    const StepEstimate fast = job.closed_form(), exact = job.predict();
    EXPECT_NEAR(fast.memory.total() / exact.memory.total(), 1, 0.01) << plan;
    EXPECT_NEAR(fast.time / exact.time, 1, 0.01) << plan;
  }
}

TEST(PipelineMessages, ThatAreHiddenTakeNoTimeAndHalfHiddenOnesHalf) {
  const auto time = [](double overlap) {
    CutJob job("llama-3-8b", "8x1xV100-32GB-SXM", 64, "pp=8,schedule=gpipe", StageCut::kWork);
    job.options.precision = Precision::kFp16;
    job.options.pp_overlap = overlap;
    return job.predict().time;
  };
  const Seconds all = time(0), half = time(0.5), none = time(1);
  EXPECT_GT(all, none * 1.001);
  EXPECT_NEAR((all - none) / (half - none), 2, 1e-6);
}

TEST(PipelineMessages, ThatAreHiddenMeetNoCongestionAndSlowNoLayer) {
  const auto time = [](const char* assumed) {
    CutJob job("llama-3-8b", "8x8xH100-80GB-SXM", 64, "pp=8,dp=8", StageCut::kLayers);
    job.options = apply_assumptions(job.options, assumed).value();
    return job.predict().time.v;
  };
  const char* slow = "hop_congestion_ms=100,pending_layer_us=500,pending_ring_step_us=200";
  EXPECT_GT(time(slow), time("hop_congestion_ms=0") * 1.01);
  EXPECT_EQ(time((std::string(slow) + ",pp_overlap=1").c_str()), time("pp_overlap=1"));
}

}  // namespace
}  // namespace copus
