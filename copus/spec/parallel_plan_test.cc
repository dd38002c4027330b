#include "copus/spec/parallel_plan.h"

#include <gtest/gtest.h>

#include <limits>

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

// Returns the error of validate() on a cluster with as many GPUs as the plan has ranks, or "ok".
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
       "split=5x4-4"},
      {"pp=30", "pp: got 30, more than 24 layers; want a divisor (1, 2, 3, 4, 6, 8, …)"},
      {"pp=4,vp=5",
       "pp*vp: got 4*5, which does not divide 24 layers; want a divisor (1, 2, 3, 4, 6, 8, …) or "
       "split=1-2x4-1x15"},
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

TEST(Validate, TellsTheFieldBesideTheMessage) {
  const ClusterSpec cluster = load_cluster("1x1xB200").value();
  const auto field = [&](std::string_view text) {
    ClusterSpec enough = cluster;
    enough.gpus_per_node = plan_of(text).gpus();
    return plan_of(text).validate(llama(), enough, 2048, 64).error().field;
  };
  EXPECT_EQ(field("tp=3"), "tp");
  EXPECT_EQ(field("pp=4,vp=5"), "pp*vp");
  EXPECT_EQ(field("pp=3,split=12-0-12"), "stage_layers");
  EXPECT_EQ(field("dp=3"), "global_batch");
  EXPECT_EQ(field("pp=2,zero=2"), "zero");
}

TEST(Validate, CountsMustMatchTheClusterAndMayNotOverflow) {
  const ClusterSpec cluster = load_cluster("1x8xB200").value();
  const auto error = [&](std::string_view text) {
    return plan_of(text).validate(llama(), cluster, 2048, 64).error().message;
  };
  EXPECT_EQ(error("tp=2,pp=4,dp=2"),
            "plan: tp*cp*pp*dp = 16 (2*1*4*2); want 8, the GPUs of 1x8xB200");
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
  EXPECT_EQ(thin.error().message, "pp: got 5; want at most 4, the number of layers");
}

}  // namespace
}  // namespace copus
