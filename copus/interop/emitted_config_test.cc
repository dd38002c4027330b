#include "copus/interop/emitted_config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "copus/interop/megatron_args.h"
#include "copus/spec/hf_config.h"

namespace copus {
namespace {

struct Emitted {
  Result<EmittedConfig> config;
  bool has(const std::string& arg) const {
    return config && std::find(config->args.begin(), config->args.end(), arg) != config->args.end();
  }
  bool names(const std::string& key) const {
    return config && std::any_of(config->args.begin(), config->args.end(), [&](const auto& arg) {
             return arg.starts_with(key + " ") || arg.starts_with(key + "=") || arg == key;
           });
  }
  std::string error() const { return config ? "" : config.error().message; }
};

Emitted emitted(const char* target, const char* name, const char* text,
                Precision precision = Precision::kBf16, std::int64_t batch = 64) {
  const ModelSpec model = load_model(name).value();
  CostOptions options;
  options.precision = precision;
  return {emit_config(target, {model, 4096, batch, options},
                      parse_plan_text(text, "--plan").value().plan)};
}

TEST(TorchtitanConfig, StatesShardingPipelineAndBatch) {
  const Emitted fsdp = emitted("torchtitan", "llama-3.1-8b", "dp=8,tp=2,sp=1,zero=3,micro_batch=2");
  ASSERT_EQ(fsdp.error(), "");
  for (const char* arg :
       {"--module llama3", "--config llama3_8b", "--parallelism.data_parallel_shard_degree 8",
        "--parallelism.data_parallel_replicate_degree 1",
        "--parallelism.fsdp_reshard_after_forward always", "--parallelism.tensor_parallel_degree 2",
        "--training.num_tokens_per_microbatch_per_dp_rank 8192",
        "--training.num_tokens_per_train_step 262144", "activation-checkpoint:none"}) {
    EXPECT_TRUE(fsdp.has(arg)) << arg;
  }
  EXPECT_EQ(fsdp.config->args.back(), "activation-checkpoint:none") << "a subcommand comes last";
  const Emitted replicated = emitted("torchtitan", "llama-3.1-8b", "dp=8,tp=2");
  EXPECT_TRUE(replicated.has("--parallelism.data_parallel_replicate_degree 8"));
  EXPECT_TRUE(replicated.has("--parallelism.data_parallel_shard_degree 1"));
  EXPECT_TRUE(replicated.has("--parallelism.no_enable_sequence_parallel"));
  const Emitted staged =
      emitted("torchtitan", "llama-3.1-8b", "dp=4,pp=2,vp=4,zero=1,schedule=interleaved");
  for (const char* arg : {"--parallelism.pipeline_parallel_schedule Interleaved1F1B",
                          "--parallelism.num_pp_microbatches 16",
                          "--parallelism.pipeline_parallel_layers_per_stage 4",
                          "--parallelism.pipeline_parallel_first_stage_less_layers 0",
                          "--parallelism.fsdp_reshard_after_forward never"}) {
    EXPECT_TRUE(staged.has(arg)) << arg;
  }
}

TEST(TorchtitanConfig, OfShardedWeightsInAPipelineGathersForEveryMicroBatch) {
  const Emitted staged = emitted("torchtitan", "llama-3.1-8b", "dp=4,pp=2,zero=3");
  EXPECT_TRUE(staged.has("--parallelism.fsdp_reshard_after_forward always"));
  EXPECT_TRUE(staged.has("--parallelism.data_parallel_shard_degree 4"));
}

TEST(TorchtitanConfig, SpreadsWholeExpertsOverTheRanksOfTpToo) {
  const Emitted spread = emitted("torchtitan", "qwen3-30b-a3b", "dp=4,tp=2,sp=1,ep=8,etp=1,zero=3");
  ASSERT_EQ(spread.error(), "");
  EXPECT_TRUE(spread.has("--parallelism.expert_parallel_degree 8"));
  EXPECT_EQ(emitted("torchtitan", "qwen3-30b-a3b", "dp=4,tp=2,sp=1,zero=3").error(), "");
}

TEST(TorchtitanConfig, DividesLayersAsThePlanDoesOrRefuses) {
  const Emitted ends = emitted("torchtitan", "llama-3.1-8b", "dp=2,pp=4,zero=1,split=8-9-9-6");
  ASSERT_EQ(ends.error(), "");
  EXPECT_TRUE(ends.has("--parallelism.pipeline_parallel_first_stage_less_layers 1"));
  EXPECT_TRUE(ends.has("--parallelism.pipeline_parallel_last_stage_less_layers 2"));
  EXPECT_NE(emitted("torchtitan", "llama-3.1-8b", "dp=2,pp=4,zero=1,split=8-6-10-8")
                .error()
                .find("stage_layers: got 8-6-10-8"),
            std::string::npos);
}

TEST(TorchtitanConfig, RefusesByNameWhatItCannotSay) {
  const auto error = [](const char* model, const char* plan, Precision p = Precision::kBf16) {
    return emitted("torchtitan", model, plan, p).error();
  };
  EXPECT_NE(error("gpt2-xl", "dp=8").find("model: got gpt2-xl; want llama-3.1-8b"),
            std::string::npos);
  EXPECT_NE(error("llama-3.1-405b", "dp=8,zero=3").find("model: got"), std::string::npos);
  EXPECT_EQ(error("llama-3.1-405b", "dp=8,zero=3", Precision::kFp8), "");
  EXPECT_NE(error("llama-3.1-8b", "dp=8,zero=2").find("zero: got 2"), std::string::npos);
  EXPECT_NE(error("llama-3.1-8b", "dp=4,cp=2").find("zero: got 0 with cp=2"), std::string::npos);
  EXPECT_NE(error("llama-3.1-8b", "pp=2,schedule=zero_bubble").find("schedule: got zero_bubble"),
            std::string::npos);
  EXPECT_NE(error("qwen3-30b-a3b", "dp=4,tp=2,sp=1,ep=4,zero=3").find("etp: got 2 with tp=2"),
            std::string::npos);
  EXPECT_NE(error("qwen3-30b-a3b", "dp=4,tp=2,sp=1,etp=1,zero=3").find("etp: got 1 with tp=2"),
            std::string::npos);
}

TEST(NemoConfig, StatesEverySettingOfThePlanBecauseARecipeHasItsOwn) {
  const Emitted plain = emitted("nemo", "llama-3-8b", "dp=8");
  ASSERT_EQ(plain.error(), "");
  for (const char* arg :
       {"--model llama3_8b", "--mode pretrain", "mixed_precision=bf16_mixed",
        "model.tensor_model_parallel_size=1", "model.sequence_parallel=false",
        "model.virtual_pipeline_model_parallel_size=null",
        "model.pipeline_model_parallel_layout=null", "model.recompute_granularity=null",
        "ddp.use_distributed_optimizer=false", "ddp.use_megatron_fsdp=false",
        "train.global_batch_size=64", "dataset.seq_length=4096"}) {
    EXPECT_TRUE(plain.has(arg)) << arg;
  }
  const Emitted split =
      emitted("nemo", "llama-3-70b", "tp=4,pp=4,dp=4,zero=1,sp=1,recompute=full,split=19-20-21-20");
  EXPECT_TRUE(split.has("model.recompute_method=uniform"));
  EXPECT_TRUE(split.names("model.pipeline_model_parallel_layout"));
  EXPECT_TRUE(emitted("nemo", "llama-3-8b", "dp=8,zero=3")
                  .has("ddp.data_parallel_sharding_strategy=optim_grads_params"));
  EXPECT_TRUE(emitted("nemo", "qwen3-30b-a3b", "dp=8,ep=8,zero=1")
                  .has("model.expert_model_parallel_size=8"));
}

TEST(NemoConfig, NamesTheRecipeOfEachPrecision) {
  for (const auto& [precision, recipe] :
       {std::pair(Precision::kFp16, "fp16_mixed"),
        {Precision::kFp8, "bf16_with_fp8_delayed_scaling_mixed"},
        {Precision::kFp8Current, "bf16_with_fp8_current_scaling_mixed"},
        {Precision::kMxfp8, "bf16_with_mxfp8_mixed"},
        {Precision::kNvfp4, "bf16_with_nvfp4_mixed"}}) {
    EXPECT_TRUE(emitted("nemo", "llama-3-8b", "dp=8", precision)
                    .has(std::string("mixed_precision=") + recipe));
  }
}

TEST(NemoConfig, StatesOverHowManyRanksAnExpertIsCut) {
  EXPECT_TRUE(emitted("nemo", "qwen3-30b-a3b", "dp=4,tp=2,sp=1,ep=8,etp=1,zero=1")
                  .has("model.expert_tensor_parallel_size=1"));
  EXPECT_TRUE(emitted("nemo", "qwen3-30b-a3b", "dp=4,tp=2,sp=1,ep=4,zero=1")
                  .has("model.expert_tensor_parallel_size=2"));
}

TEST(NemoConfig, RefusesByNameWhatItCannotSay) {
  EXPECT_NE(emitted("nemo", "gpt2-xl", "dp=8").error().find("model: got gpt2-xl"),
            std::string::npos);
  EXPECT_NE(emitted("nemo", "llama-3-8b", "pp=2,schedule=gpipe").error().find("schedule"),
            std::string::npos);
  // Its recipe adds a layer that predicts a second token, which the model here has not.
  EXPECT_NE(emitted("nemo", "deepseek-v3", "dp=8").error().find("model: got deepseek-v3"),
            std::string::npos);
  // No model has a recipe in fp32, so the precision comes first.
  for (const char* model : {"llama-3-8b", "gpt2-xl"}) {
    EXPECT_TRUE(emitted("nemo", model, "dp=8", Precision::kFp32)
                    .error()
                    .starts_with("--precision: got fp32"));
  }
}

TEST(DeepspeedConfig, HasBatchZeroAndPrecision) {
  const Emitted sharded = emitted("deepspeed", "gpt2-xl", "dp=8,tp=2,zero=3,micro_batch=2");
  ASSERT_EQ(sharded.error(), "");
  const Json& file = sharded.config->file;
  EXPECT_EQ(file["train_batch_size"], 64);
  EXPECT_EQ(file["gradient_accumulation_steps"], 4);
  EXPECT_EQ(file["zero_optimization"]["stage"], 3);
  EXPECT_EQ(file["tensor_parallel"]["autotp_size"], 2);
  EXPECT_EQ(file["bf16"]["enabled"], true);
  EXPECT_TRUE(sharded.config->args.empty());
}

TEST(DeepspeedConfig, RefusesByNameWhatTheFileCannotSay) {
  for (const auto& [plan, field] : {std::pair("pp=2", "pp: got 2"),
                                    {"tp=2,sp=1", "sp: got 1"},
                                    {"recompute=full", "recompute: got full"},
                                    {"cp=2", "cp: got 2"}}) {
    EXPECT_TRUE(emitted("deepspeed", "llama-3-8b", plan).error().starts_with(field)) << plan;
  }
  EXPECT_NE(emitted("deepspeed", "llama-3-8b", "dp=8", Precision::kFp8).error().find("fp8"),
            std::string::npos);
  // Another plan would be refused too, so the precision comes first.
  EXPECT_TRUE(emitted("deepspeed", "llama-3-8b", "pp=2", Precision::kMxfp8)
                  .error()
                  .starts_with("--precision: got mxfp8"));
}

// A ring cannot do windowed attention, and an all-to-all needs heads for every rank.
TEST(EmittedConfig, OfWindowedAttentionWithCpNamesTheExchange) {
  ModelSpec model = load_model("mistral-7b").value();
  model.sliding_window = 1024;
  const auto args = [&](const char* plan) {
    return emit_config("megatron", {model, 4096, 64, CostOptions()},
                       parse_plan_text(plan, "--plan").value().plan)
        .value()
        .args;
  };
  const auto has = [](const std::vector<std::string>& list, const char* arg) {
    return std::find(list.begin(), list.end(), arg) != list.end();
  };
  EXPECT_TRUE(has(args("cp=4"), "--cp-comm-type a2a"));
  EXPECT_TRUE(has(args("cp=4,tp=4"), "--cp-comm-type all_gather"));
  EXPECT_FALSE(has(args("tp=4"), "--cp-comm-type a2a"));
  model.sliding_window = 0;
  EXPECT_FALSE(has(args("cp=4"), "--cp-comm-type a2a"));
}

TEST(EmittedConfig, QuotesForAShellWhatAShellWouldRead) {
  EXPECT_EQ(shell_line("model.recompute_modules=[core_attn]"),
            "'model.recompute_modules=[core_attn]'");
  EXPECT_EQ(shell_line("train.micro_batch_size=1"), "train.micro_batch_size=1");
}

}  // namespace
}  // namespace copus
