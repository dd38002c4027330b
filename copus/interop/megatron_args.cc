#include "copus/interop/megatron_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace copus {

std::string pipeline_layout(const ParallelPlan& plan) {
  std::string layout;
  for (std::size_t i = 0; i < plan.stage_layers.size(); ++i) {
    if (i > 0) layout += '|';
    if (i == 0) layout += 'E';
    layout.append(static_cast<std::size_t>(plan.stage_layers[i]), 't');
    if (i + 1 == plan.stage_layers.size()) layout += 'L';
  }
  return layout;
}

std::string cp_comm_type(const ModelSpec& model, const ParallelPlan& plan, std::int64_t seq_len) {
  const bool windowed = model.sliding_window > 0 && model.sliding_window < seq_len;
  if (plan.cp == 1 || !windowed) return "";
  return model.kv_heads % (plan.tp * plan.cp) == 0 ? "a2a" : "all_gather";
}

namespace {

// Whether a split is what Megatron-LM makes if it counts the embedding or the loss as a layer: all
// chunks have the same number of layers, except that one or both ends have one less.
struct CountedEnds {
  bool embedding = false, loss = false;
};
CountedEnds counted_ends(const ParallelPlan& plan) {
  const std::vector<std::int64_t>& layers = plan.stage_layers;
  if (layers.size() < 2) return {};
  const std::int64_t middle =
      layers.size() > 2 ? layers[1] : std::max(layers.front(), layers.back());
  const auto inner_is_even = std::all_of(layers.begin() + 1, layers.end() - 1,
                                         [&](std::int64_t n) { return n == middle; });
  const auto may_be = [&](std::int64_t end) { return end == middle || end == middle - 1; };
  if (!inner_is_even || !may_be(layers.front()) || !may_be(layers.back())) return {};
  return {layers.front() == middle - 1, layers.back() == middle - 1};
}

// Returns which layers have experts, as a list expression of Python: 1 stands for experts.
std::string layer_pattern(const ModelSpec& m) {
  const auto term = [](bool moe, std::int64_t count) {
    return fmt::format("[{}]*{}", moe ? 1 : 0, count);
  };
  const auto pattern_of = [&](std::int64_t layers) {
    std::string terms;
    for (std::int64_t first = 0; first < layers;) {
      std::int64_t end = first;
      while (end < layers && m.layer_is_moe(end) == m.layer_is_moe(first)) ++end;
      if (first > 0) terms += '+';
      terms += term(m.layer_is_moe(first), end - first);
      first = end;
    }
    return fmt::format("({})", terms);
  };
  const std::int64_t step = m.moe.layer_step;
  const bool periodic = step > 1 && m.moe.first_dense_layers == 0 && m.layers % step == 0;
  return periodic ? fmt::format("{}*{}", pattern_of(step), m.layers / step) : pattern_of(m.layers);
}

// Adds how tokens reach their experts, and the products there. Megatron-LM takes DeepEP only if
// experts are spread over several ranks.
void add_expert_dispatch(const ParallelPlan& plan, const CostOptions& options,
                         std::vector<std::string>& args) {
  if (sends_tokens_once(options) && plan.ep * plan.expert_tp() > 1) {
    args.push_back("--moe-token-dispatcher-type flex");
    args.push_back("--moe-flex-dispatcher-backend deepep");
    args.push_back("--moe-router-dtype fp32");  // the backend takes no other weights of experts
  } else {
    args.push_back("--moe-token-dispatcher-type alltoall");
  }
  if (options.expert_capacity > 0) {
    args.push_back(fmt::format("--moe-expert-capacity-factor {}", options.expert_capacity));
    args.push_back("--moe-pad-expert-input-to-capacity");
  }
  // The cost model prices one grouped product for all experts. Megatron-LM has it only with --bf16,
  // which FP8 uses too.
  if (options.precision == Precision::kBf16 || is_quantised(options.precision))
    args.push_back("--moe-grouped-gemm");
}

void add_model(const ModelSpec& m, const ParallelPlan& plan, std::int64_t seq_len,
               const CostOptions& options, std::vector<std::string>& args) {
  args.push_back(fmt::format("--num-layers {}", m.layers));
  args.push_back(fmt::format("--hidden-size {}", m.hidden));
  args.push_back(fmt::format("--ffn-hidden-size {}", m.ffn));
  args.push_back(fmt::format("--num-attention-heads {}", m.heads));
  if (m.mla.enabled) {
    args.push_back("--multi-latent-attention");
    args.push_back("--qk-layernorm");
    if (m.mla.q_lora_rank > 0) args.push_back(fmt::format("--q-lora-rank {}", m.mla.q_lora_rank));
    args.push_back(fmt::format("--kv-lora-rank {}", m.mla.kv_lora_rank));
    args.push_back(fmt::format("--qk-head-dim {}", m.mla.qk_nope_head_dim));
    args.push_back(fmt::format("--qk-pos-emb-head-dim {}", m.mla.qk_rope_head_dim));
    args.push_back(fmt::format("--v-head-dim {}", m.mla.v_head_dim));
    args.push_back("--rope-type rope");  // with latent attention, Megatron-LM's default is yarn
  } else {
    if (m.kv_heads != m.heads) {
      args.push_back("--group-query-attention");
      args.push_back(fmt::format("--num-query-groups {}", m.kv_heads));
    }
    if (m.head_dim * m.heads != m.hidden)
      args.push_back(fmt::format("--kv-channels {}", m.head_dim));
  }
  args.push_back(fmt::format("--max-position-embeddings {}", std::max(m.max_positions, seq_len)));
  args.push_back(m.positions == Positions::kRope ? "--position-embedding-type rope"
                                                 : "--position-embedding-type learned_absolute");
  if (m.positions == Positions::kRope) {
    args.push_back(fmt::format("--rotary-base {:.0f}", m.rope_theta));
    if (m.rope_scaling.kind == RopeScaling::kLlama3) {
      args.push_back("--use-rope-scaling");
      args.push_back(fmt::format("--rope-scaling-factor {}", m.rope_scaling.factor));
    }
    if (m.rope_scaling.kind == RopeScaling::kLinear) {
      args.push_back(
          fmt::format("--rotary-seq-len-interpolation-factor {:.0f}", m.rope_scaling.factor));
    }
  }
  // Megatron-LM counts the positions before the token; sliding_window includes the token itself.
  if (m.sliding_window > 0 && m.sliding_window < seq_len)
    args.push_back(fmt::format("--window-size {},0", m.sliding_window - 1));
  if (!m.dropout) {
    args.push_back(fmt::format("--attention-dropout {}", m.attention_dropout));
    args.push_back("--hidden-dropout 0");
  }
  args.push_back(m.norm == Norm::kRmsNorm ? "--normalization RMSNorm"
                                          : "--normalization LayerNorm");
  if (m.norm_eps != 1e-5) args.push_back(fmt::format("--norm-epsilon {}", m.norm_eps));
  if (m.gated_mlp) args.push_back("--swiglu");
  if (!m.mlp_bias) args.push_back("--disable-bias-linear");
  if (m.qkv_bias && !m.mlp_bias) args.push_back("--add-qkv-bias");
  if (m.qk_norm) args.push_back("--qk-layernorm");
  if (!m.tied_embeddings) args.push_back("--untie-embeddings-and-output-weights");
  if (m.is_moe()) {
    args.push_back(fmt::format("--num-experts {}", m.moe.experts));
    args.push_back(fmt::format("--moe-router-topk {}", m.moe.experts_per_token));
    args.push_back(fmt::format("--moe-ffn-hidden-size {}", m.moe.expert_ffn));
    add_expert_dispatch(plan, options, args);
    if (m.moe.router_correction_bias) {
      args.push_back("--moe-router-score-function sigmoid");
      args.push_back("--moe-router-enable-expert-bias");
    }
    if (m.moe.router_groups > 1) {
      args.push_back(fmt::format("--moe-router-num-groups {}", m.moe.router_groups));
      args.push_back(fmt::format("--moe-router-group-topk {}", m.moe.router_group_topk));
    }
    if (m.moe.router_scale != 1)
      args.push_back(fmt::format("--moe-router-topk-scaling-factor {}", m.moe.router_scale));
    if (m.moe.shared_experts > 0) {
      args.push_back(fmt::format("--moe-shared-expert-intermediate-size {}",
                                 m.moe.shared_experts * m.moe.expert_ffn));
    }
    if (m.moe_layers() < m.layers)
      args.push_back(fmt::format("--moe-layer-freq {}", layer_pattern(m)));
  }
}

// Refuses a model that Megatron-LM's flags cannot describe, because they would describe another
// model.
Result<void> check_model(const ModelSpec& m, std::int64_t seq_len) {
  if (m.family == "llama4_text") {
    return field_error(
        "model_type",
        "got llama4_text; its layers without rotary positions and its way to weigh "
        "experts are not part of a plan's model, so the flags would describe another");
  }
  if (m.full_layers > 0 && m.sliding_window < seq_len) {
    return field_error("max_window_layers",
                       "got {} of {} layers without a window; Megatron-LM windows all layers",
                       m.full_layers, m.layers);
  }
  if (m.gated_mlp && m.activation != Activation::kSilu) {
    return field_error("hidden_act",
                       "got gelu in a gated MLP; Megatron-LM's flags have silu there");
  }
  const RopeScaling& rope = m.rope_scaling;
  if (rope.kind == RopeScaling::kOther || (m.mla.enabled && rope.kind != RopeScaling::kNone)) {
    return field_error("rope_scaling", "got {}; Megatron-LM's flags have llama3 and linear{}",
                       rope.kind == RopeScaling::kOther    ? rope.other
                       : rope.kind == RopeScaling::kLinear ? "linear"
                                                           : "llama3",
                       m.mla.enabled ? ", and neither with latent attention" : "");
  }
  if (rope.kind == RopeScaling::kLlama3 &&
      (rope.low_freq_factor != 1 || rope.high_freq_factor != 4 ||
       rope.original_max_positions != 8192)) {
    return field_error("rope_scaling",
                       "got llama3 with factors {} and {} from {} positions; Megatron-LM has "
                       "factors 1 and 4 from 8192 positions",
                       rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions);
  }
  if (rope.kind == RopeScaling::kLinear && rope.factor != std::floor(rope.factor)) {
    return field_error("rope_scaling", "got linear by {}; Megatron-LM's factor is a whole number",
                       rope.factor);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> megatron_args(const ModelSpec& model, const ParallelPlan& plan,
                                               std::int64_t seq_len, std::int64_t global_batch,
                                               const CostOptions& options) {
  if (plan.schedule == ScheduleKind::kGPipe || plan.schedule == ScheduleKind::kZeroBubble) {
    return field_error("schedule", "got {}; Megatron-LM runs 1f1b or interleaved",
                       to_string(plan.schedule));
  }
  if (plan.is_cut_by_work(options.stage_cut)) {
    return field_error("stage_cut", "got work; Megatron-LM cuts stages between layers");
  }
  COPUS_TRY_VOID(check_model(model, seq_len));
  if (model.is_moe() && plan.tp > 1 && !plan.sp) {
    return field_error(
        "sp", "got 0 with tp={} and experts; Megatron-LM trains experts under tp with sp=1 only",
        plan.tp);
  }
  if (plan.ep > 1 && options.precision == Precision::kFp16) {
    return field_error(
        "ep", "got {} in fp16; Megatron-LM trains experts in parallel in bf16 or fp32", plan.ep);
  }
  std::vector<std::string> args;
  add_model(model, plan, seq_len, options, args);
  args.push_back(fmt::format("--seq-length {}", seq_len));
  args.push_back(fmt::format("--tensor-model-parallel-size {}", plan.tp));
  args.push_back(fmt::format("--pipeline-model-parallel-size {}", plan.pp));
  const CountedEnds ends = counted_ends(plan);
  if (ends.embedding) args.push_back("--account-for-embedding-in-pipeline-split");
  if (ends.loss) args.push_back("--account-for-loss-in-pipeline-split");
  const bool even = plan.stage_layers.empty() || ends.embedding || ends.loss;
  if (!even) {
    args.push_back(fmt::format("--pipeline-model-parallel-layout {}", pipeline_layout(plan)));
  } else if (plan.vp > 1) {
    args.push_back(fmt::format("--num-virtual-stages-per-pipeline-rank {}", plan.vp));
  }
  if (plan.cp > 1) args.push_back(fmt::format("--context-parallel-size {}", plan.cp));
  if (const std::string type = cp_comm_type(model, plan, seq_len); !type.empty())
    args.push_back("--cp-comm-type " + type);
  if (plan.ep > 1) args.push_back(fmt::format("--expert-model-parallel-size {}", plan.ep));
  // Stated also where it is Megatron-LM's default (tp), because many launch scripts change it.
  if (model.is_moe() && (plan.tp > 1 || plan.expert_tp() > 1))
    args.push_back(fmt::format("--expert-tensor-parallel-size {}", plan.expert_tp()));
  if (plan.sp) args.push_back("--sequence-parallel");
  args.push_back(fmt::format("--micro-batch-size {}", plan.micro_batch));
  args.push_back(fmt::format("--global-batch-size {}", global_batch));
  if (plan.recompute == Recompute::kSelective) args.push_back("--recompute-granularity selective");
  if (plan.recompute == Recompute::kFull) {
    args.push_back("--recompute-granularity full");
    args.push_back("--recompute-method uniform");
    args.push_back("--recompute-num-layers 1");
  }
  const bool overlap = overlaps_gradients(options, plan.zero);
  if (plan.zero == 1) args.push_back("--use-distributed-optimizer");
  if (plan.zero >= 2) {
    args.push_back("--use-distributed-optimizer");
    args.push_back("--use-megatron-fsdp");
    args.push_back(fmt::format("--data-parallel-sharding-strategy {}",
                               plan.zero == 2 ? "optim_grads" : "optim_grads_params"));
    args.push_back("--ckpt-format fsdp_dtensor");  // the only format that Megatron's FSDP takes
  }
  if (overlap) args.push_back("--overlap-grad-reduce");
  if (overlap && plan.zero >= 1) args.push_back("--overlap-param-gather");
  switch (options.precision) {
    case Precision::kBf16:
      args.push_back("--bf16");
      break;
    case Precision::kFp16:
      args.push_back("--fp16");
      break;
    case Precision::kFp8:
      args.push_back("--bf16");
      args.push_back("--fp8-format hybrid");
      break;
    case Precision::kFp8Current:
      args.push_back("--bf16");
      args.push_back("--fp8-format hybrid");
      args.push_back("--fp8-recipe tensorwise");
      break;
    case Precision::kMxfp8:
      args.push_back("--bf16");
      args.push_back("--fp8-format e4m3");
      args.push_back("--fp8-recipe mxfp8");
      break;
    case Precision::kNvfp4:
      args.push_back("--bf16");
      args.push_back("--fp4-format e2m1");
      args.push_back("--fp4-recipe nvfp4");
      break;
    case Precision::kFp32:
      break;
  }
  return args;
}

std::vector<std::string> argument_words(const std::vector<std::string>& args) {
  std::vector<std::string> words;
  for (const std::string& arg : args) {
    const std::size_t space = arg.find(' ');
    words.push_back(arg.substr(0, space));
    if (space != std::string::npos) words.push_back(arg.substr(space + 1));
  }
  return words;
}

std::string shell_line(const std::string& arg) {
  // The value is what follows the flag, or the whole entry: key=value.
  const std::size_t space = arg.find(' ');
  const std::size_t value = space == std::string::npos ? 0 : space + 1;
  if (arg.find_first_of("|*()[]$&;<>'\"\\", value) == arg.npos) return arg;
  return fmt::format("{}'{}'", arg.substr(0, value), arg.substr(value));
}

}  // namespace copus
