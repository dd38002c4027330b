#include "copus/interop/megatron_args.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "copus/spec/hf_config.h"

namespace copus {
namespace {

using Flags = std::vector<std::string>;

Flags flags_of(const std::string& model, const std::string& plan,
               const CostOptions& options = CostOptions()) {
  const Result<Flags> flags = megatron_args(
      load_model(model).value(), parse_plan_text(plan, "--plan").value().plan, 4096, 512, options);
  EXPECT_TRUE(flags.has_value()) << (flags ? "" : flags.error().message);
  return flags ? *flags : Flags();
}

// Whether the flags contain exactly this entry: "--flag value", or a flag without a value.
bool has(const Flags& flags, const std::string& flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}
// Whether the flags contain a flag of that name, with any value or none.
bool names(const Flags& flags, const std::string& name) {
  return std::any_of(flags.begin(), flags.end(), [&](const std::string& flag) {
    return flag == name || flag.rfind(name + " ", 0) == 0;
  });
}

TEST(MegatronArgs, AttentionMayHaveADropoutOfItsOwn) {
  ModelSpec model = load_model("llama-3-8b").value();
  model.attention_dropout = 0.1;
  const Flags flags = megatron_args(model, ParallelPlan(), 4096, 512, CostOptions()).value();
  EXPECT_TRUE(has(flags, "--attention-dropout 0.1"));
  EXPECT_TRUE(has(flags, "--hidden-dropout 0"));
}

TEST(MegatronArgs, OfADenseModelStateItsShapeAndItsLayout) {
  const Flags flags = flags_of("llama-3-70b", "tp=8,pp=4,dp=2,micro_batch=2,zero=1,sp=1");
  for (const char* flag : {"--num-layers 80",
                           "--hidden-size 8192",
                           "--ffn-hidden-size 28672",
                           "--num-attention-heads 64",
                           "--group-query-attention",
                           "--num-query-groups 8",
                           "--position-embedding-type rope",
                           "--normalization RMSNorm",
                           "--swiglu",
                           "--disable-bias-linear",
                           "--untie-embeddings-and-output-weights",
                           "--seq-length 4096",
                           "--tensor-model-parallel-size 8",
                           "--pipeline-model-parallel-size 4",
                           "--sequence-parallel",
                           "--micro-batch-size 2",
                           "--global-batch-size 512",
                           "--use-distributed-optimizer",
                           "--overlap-grad-reduce",
                           "--overlap-param-gather",
                           "--bf16"}) {
    EXPECT_TRUE(has(flags, flag)) << flag;
  }
  for (const char* name :
       {"--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout",
        "--context-parallel-size", "--expert-model-parallel-size", "--num-experts",
        "--recompute-granularity", "--multi-latent-attention", "--qk-layernorm", "--fp16"}) {
    EXPECT_FALSE(names(flags, name)) << name;
  }
}

TEST(MegatronArgs, OfAGptKeepItsBiasesAndItsTiedEmbeddings) {
  const Flags flags = flags_of("gpt3-175b", "tp=8,pp=8,recompute=selective");
  EXPECT_TRUE(has(flags, "--position-embedding-type learned_absolute"));
  EXPECT_TRUE(has(flags, "--normalization LayerNorm"));
  EXPECT_TRUE(has(flags, "--recompute-granularity selective"));
  for (const char* name : {"--swiglu", "--disable-bias-linear", "--group-query-attention",
                           "--untie-embeddings-and-output-weights", "--sequence-parallel",
                           "--use-distributed-optimizer", "--overlap-grad-reduce"}) {
    EXPECT_FALSE(names(flags, name)) << name;
  }
}

TEST(MegatronArgs, StateHowPositionsAreStretchedAndNormsKeptFromZero) {
  const Flags llama = flags_of("llama-3.1-8b", "tp=1");
  EXPECT_TRUE(has(llama, "--use-rope-scaling"));
  EXPECT_TRUE(has(llama, "--rope-scaling-factor 8"));
  EXPECT_FALSE(names(llama, "--norm-epsilon"));  // Megatron-LM's default
  EXPECT_FALSE(names(flags_of("llama-3-8b", "tp=1"), "--use-rope-scaling"));
  EXPECT_TRUE(has(flags_of("qwen-2.5-7b", "tp=1"), "--norm-epsilon 1e-06"));
}

TEST(MegatronArgs, StateAWindowThatIsShorterThanTheSequence) {
  ModelSpec model = load_model("mistral-7b").value();
  model.sliding_window = 1024;
  const auto flags = [&](std::int64_t seq_len) {
    return megatron_args(model, ParallelPlan(), seq_len, 512, CostOptions()).value();
  };
  EXPECT_TRUE(has(flags(4096), "--window-size 1023,0"));
  EXPECT_FALSE(names(flags(1024), "--window-size"));
}

TEST(MegatronArgs, OfLatentAttentionSayThatPositionsAreNotStretched) {
  EXPECT_TRUE(has(flags_of("deepseek-v3", "tp=1"), "--rope-type rope"));
  ModelSpec model = load_model("deepseek-v3").value();
  model.rope_scaling.kind = RopeScaling::kOther;
  model.rope_scaling.other = "yarn";
  EXPECT_FALSE(megatron_args(model, ParallelPlan(), 4096, 512, CostOptions()));
}

TEST(MegatronArgs, OfDeepSeekStateHowExpertsAreChosen) {
  const Flags flags = flags_of("deepseek-v3", "tp=1");
  for (const char* flag : {"--moe-router-num-groups 8", "--moe-router-group-topk 4",
                           "--moe-router-topk-scaling-factor 2.5"}) {
    EXPECT_TRUE(has(flags, flag)) << flag;
  }
  EXPECT_FALSE(names(flags_of("mixtral-8x7b", "tp=1"), "--moe-router-num-groups"));
}

TEST(MegatronArgs, RefuseAModelThatTheyCannotSay) {
  const auto refusal = [](auto change) {
    ModelSpec model = load_model("llama-3.1-8b").value();
    change(model);
    const Result<Flags> flags = megatron_args(model, ParallelPlan(), 4096, 512, CostOptions());
    return flags ? std::string() : flags.error().message;
  };
  EXPECT_EQ(refusal([](ModelSpec& m) { m.activation = Activation::kGelu; }),
            "hidden_act: got gelu in a gated MLP; Megatron-LM's flags have silu there");
  EXPECT_EQ(refusal([](ModelSpec& m) {
              m.rope_scaling = {};
              m.rope_scaling.kind = RopeScaling::kOther;
              m.rope_scaling.other = "yarn";
            }),
            "rope_scaling: got yarn; Megatron-LM's flags have llama3 and linear");
  EXPECT_EQ(
      refusal([](ModelSpec& m) { m.rope_scaling.original_max_positions = 4096; }),
      "rope_scaling: got llama3 with factors 1 and 4 from 4096 positions; Megatron-LM has factors "
      "1 and 4 from 8192 positions");
}

TEST(MegatronArgs, StateEachFlagOnce) {
  for (const char* model :
       {"gpt2-xl", "llama-3-8b", "qwen-2.5-7b", "qwen3-30b-a3b", "deepseek-v3"}) {
    std::vector<std::string> seen;
    for (const std::string& flag : flags_of(model, "pp=1,zero=1")) {
      EXPECT_EQ(flag.rfind("--", 0), 0u) << flag;
      seen.push_back(flag.substr(0, flag.find(' ')));
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << model;
  }
}

TEST(MegatronArgs, OfAnInterleavedPlanCountItsVirtualStages) {
  const Flags flags = flags_of("llama-3-70b", "tp=4,pp=4,vp=5");
  EXPECT_TRUE(has(flags, "--pipeline-model-parallel-size 4"));
  EXPECT_TRUE(has(flags, "--num-virtual-stages-per-pipeline-rank 5"));
}

TEST(MegatronArgs, OfAnUnevenSplitDrawItsLayout) {
  const Flags flags = flags_of("tiny", "pp=3,split=2-1-1");
  EXPECT_TRUE(has(flags, "--pipeline-model-parallel-layout Ett|t|tL"));
  EXPECT_TRUE(has(flags, "--pipeline-model-parallel-size 3"));
}

// Megatron-LM divides the layers, with the embedding and the loss as one layer each, by pp*vp.
TEST(MegatronArgs, OfASplitThatCountsTheEndsSaySo) {
  const Flags both = flags_of("llama-3.1-405b", "pp=16,vp=8,split=0-1x126-0");
  EXPECT_TRUE(has(both, "--account-for-embedding-in-pipeline-split"));
  EXPECT_TRUE(has(both, "--account-for-loss-in-pipeline-split"));
  EXPECT_TRUE(has(both, "--num-virtual-stages-per-pipeline-rank 8"));
  EXPECT_FALSE(names(both, "--pipeline-model-parallel-layout"));
  const Flags loss = flags_of("deepseek-v3", "pp=2,split=31-30");
  EXPECT_TRUE(has(loss, "--account-for-loss-in-pipeline-split"));
  EXPECT_FALSE(names(loss, "--account-for-embedding-in-pipeline-split"));
  const Flags other = flags_of("deepseek-v3", "pp=2,split=32-29");
  EXPECT_TRUE(names(other, "--pipeline-model-parallel-layout"));
  EXPECT_FALSE(names(other, "--account-for-loss-in-pipeline-split"));
}

TEST(MegatronArgs, OfAnUnevenInterleavedSplitListEveryChunk) {
  // The layout has pp*vp stages. A first or last stage without layers still has the embedding or
  // the loss.
  const Flags flags = flags_of("tiny", "pp=2,vp=2,split=1-2-1-0");
  EXPECT_TRUE(has(flags, "--pipeline-model-parallel-layout Et|tt|t|L"));
  EXPECT_FALSE(names(flags, "--num-virtual-stages-per-pipeline-rank")) << "the layout implies it";
}

TEST(MegatronArgs, OfAMixtureStateItsExperts) {
  const Flags mixtral = flags_of("mixtral-8x7b", "tp=2,sp=1,ep=8,dp=8");
  for (const char* flag : {"--num-experts 8", "--moe-router-topk 2", "--moe-ffn-hidden-size 14336",
                           "--expert-model-parallel-size 8", "--expert-tensor-parallel-size 2"}) {
    EXPECT_TRUE(has(mixtral, flag)) << flag;
  }
  EXPECT_FALSE(names(mixtral, "--moe-shared-expert-intermediate-size"));

  const Flags deepseek = flags_of("deepseek-v3", "ep=8,dp=8");
  for (const char* flag :
       {"--num-experts 256", "--moe-router-topk 8", "--moe-ffn-hidden-size 2048",
        "--moe-shared-expert-intermediate-size 2048", "--moe-layer-freq ([0]*3+[1]*58)",
        "--multi-latent-attention", "--q-lora-rank 1536", "--kv-lora-rank 512", "--qk-head-dim 128",
        "--qk-pos-emb-head-dim 64", "--v-head-dim 128"}) {
    EXPECT_TRUE(has(deepseek, flag)) << flag;
  }
}

TEST(MegatronArgs, SayOverHowManyRanksAnExpertIsCut) {
  const Flags uncut = flags_of("mixtral-8x7b", "tp=2,sp=1,ep=8,etp=1,dp=8");
  EXPECT_TRUE(has(uncut, "--expert-tensor-parallel-size 1"));
  EXPECT_TRUE(has(uncut, "--expert-model-parallel-size 8"));
  EXPECT_FALSE(names(flags_of("mixtral-8x7b", "ep=8,dp=8"), "--expert-tensor-parallel-size"));
  EXPECT_FALSE(names(flags_of("llama-3-8b", "tp=2,sp=1,dp=4"), "--expert-tensor-parallel-size"));
}

// A pattern of Megatron-LM is a list expression with one entry per layer.
TEST(MegatronArgs, SayWhichLayersHaveExperts) {
  ModelSpec model = load_model("llama-4-maverick").value();
  // Its flags would leave out which layers have no rotary positions.
  const Result<Flags> refused = megatron_args(model, ParallelPlan(), 4096, 512, CostOptions());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "model_type");
  model.family = "qwen3_moe";
  const auto pattern = [&] {
    const Flags flags = megatron_args(model, ParallelPlan(), 4096, 512, CostOptions()).value();
    const std::string name = "--moe-layer-freq ";
    for (const std::string& flag : flags) {
      if (flag.starts_with(name)) return flag.substr(name.size());
    }
    return std::string();
  };
  EXPECT_EQ(pattern(), "([0]*1+[1]*1)*24");
  model.layers = 5;
  EXPECT_EQ(pattern(), "([0]*1+[1]*1+[0]*1+[1]*1+[0]*1)");
  model.moe.layer_step = 1;
  model.moe.layer_offset = 0;
  EXPECT_EQ(pattern(), "");
}

TEST(MegatronArgs, SayHowTokensReachTheirExperts) {
  const Flags usual = flags_of("mixtral-8x7b", "ep=8,dp=8");
  EXPECT_TRUE(has(usual, "--moe-token-dispatcher-type alltoall"));
  EXPECT_FALSE(names(usual, "--moe-expert-capacity-factor"));
  CostOptions options;
  options.expert_dispatch = ExpertDispatch::kDeduplicated;
  const Flags once = flags_of("mixtral-8x7b", "ep=8,dp=8", options);
  for (const char* flag : {"--moe-token-dispatcher-type flex",
                           "--moe-flex-dispatcher-backend deepep", "--moe-router-dtype fp32"}) {
    EXPECT_TRUE(has(once, flag)) << flag;
  }
  // Megatron-LM refuses that backend on one rank (TPxEP > 1), where nothing is sent.
  const Flags alone = flags_of("mixtral-8x7b", "dp=8", options);
  EXPECT_TRUE(has(alone, "--moe-token-dispatcher-type alltoall"));
  EXPECT_FALSE(names(alone, "--moe-flex-dispatcher-backend"));
  EXPECT_TRUE(has(flags_of("mixtral-8x7b", "tp=2,sp=1,dp=4", options),
                  "--moe-flex-dispatcher-backend deepep"));
  // Megatron-LM refuses padded capacities with that backend, and the cost model prices an
  // all-to-all then.
  options.expert_capacity = 1.25;
  const Flags padded = flags_of("mixtral-8x7b", "ep=8,dp=8", options);
  for (const char* flag :
       {"--moe-token-dispatcher-type alltoall", "--moe-expert-capacity-factor 1.25",
        "--moe-pad-expert-input-to-capacity"}) {
    EXPECT_TRUE(has(padded, flag)) << flag;
  }
  EXPECT_FALSE(names(padded, "--moe-flex-dispatcher-backend"));
}

TEST(MegatronArgs, AreWordsForAProgramAndQuotedLinesForAShell) {
  const Flags flags = {"--bf16", "--num-layers 4", "--pipeline-model-parallel-layout Et|tt|tL"};
  EXPECT_EQ(argument_words(flags),
            (Flags{"--bf16", "--num-layers", "4", "--pipeline-model-parallel-layout", "Et|tt|tL"}));
  EXPECT_EQ(shell_line(flags[0]), "--bf16");
  EXPECT_EQ(shell_line(flags[1]), "--num-layers 4");
  EXPECT_EQ(shell_line(flags[2]), "--pipeline-model-parallel-layout 'Et|tt|tL'");
}

// Follows Megatron-LM's own checks (megatron/training/arguments.py, moe_layer.py).
TEST(MegatronArgs, OfAMixtureAreWhatMegatronAccepts) {
  EXPECT_TRUE(names(flags_of("mixtral-8x7b", "ep=8,dp=8"), "--moe-grouped-gemm"));
  CostOptions half;
  half.precision = Precision::kFp16;
  const ModelSpec mixtral = load_model("mixtral-8x7b").value();
  const auto args = [&](const char* plan) {
    return megatron_args(mixtral, parse_plan_text(plan, "--plan").value().plan, 4096, 64, half);
  };
  EXPECT_FALSE(names(args("dp=8").value(), "--moe-grouped-gemm"));
  EXPECT_EQ(args("ep=8,dp=8").error().message.substr(0, 12), "ep: got 8 in");
  EXPECT_EQ(args("tp=2,dp=4").error().message.substr(0, 14), "sp: got 0 with");
}

TEST(MegatronArgs, FollowTheZeroStage) {
  EXPECT_FALSE(names(flags_of("llama-3-8b", "dp=8"), "--use-distributed-optimizer"));
  EXPECT_TRUE(
      has(flags_of("llama-3-8b", "dp=8,zero=2"), "--data-parallel-sharding-strategy optim_grads"));
  const Flags whole = flags_of("llama-3-8b", "dp=8,zero=3");
  EXPECT_TRUE(has(whole, "--use-megatron-fsdp"));
  EXPECT_TRUE(has(whole, "--ckpt-format fsdp_dtensor"));
  EXPECT_TRUE(has(whole, "--data-parallel-sharding-strategy optim_grads_params"));
}

TEST(MegatronArgs, FollowPrecisionRecomputeAndOverlap) {
  CostOptions options;
  options.precision = Precision::kFp8;
  options.grad_overlap = GradOverlap::kNone;
  const Flags flags = flags_of("llama-3-8b", "dp=8,zero=1,recompute=full", options);
  for (const char* flag : {"--bf16", "--fp8-format hybrid", "--recompute-granularity full",
                           "--recompute-method uniform", "--recompute-num-layers 1"}) {
    EXPECT_TRUE(has(flags, flag)) << flag;
  }
  EXPECT_FALSE(names(flags, "--overlap-grad-reduce"));
  options.precision = Precision::kFp16;
  EXPECT_TRUE(has(flags_of("llama-3-8b", "dp=8", options), "--fp16"));
  EXPECT_TRUE(has(flags_of("llama-3-8b", "cp=4,dp=2"), "--context-parallel-size 4"));
}

TEST(MegatronArgs, RefuseSchedulesThatMegatronDoesNotRun) {
  for (const char* schedule : {"zero_bubble", "gpipe"}) {
    const ParallelPlan plan =
        parse_plan_text(std::string("pp=2,schedule=") + schedule, "--plan").value().plan;
    const Result<Flags> flags =
        megatron_args(load_model("tiny").value(), plan, 128, 8, CostOptions());
    ASSERT_FALSE(flags.has_value());
    EXPECT_NE(flags.error().message.find(schedule), std::string::npos);
    EXPECT_NE(flags.error().message.find("1f1b or interleaved"), std::string::npos);
  }
}

}  // namespace
}  // namespace copus
