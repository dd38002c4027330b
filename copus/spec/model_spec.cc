// Counts parameters and floating-point operations of a decoder-only Transformer.
//
// Every count is written once, for a number type N. std::int64_t gives the exact figure. double
// tells validate() whether the exact figure would overflow.
#include "copus/spec/model_spec.h"

#include <initializer_list>
#include <string_view>

namespace copus {
namespace {

// The largest model that validate() accepts: far above any that exists, far below 2^63.
constexpr double kMaxParams = 1e15;

template <typename N>
struct Count {
  const ModelSpec& m;

  static N of(std::int64_t n) { return static_cast<N>(n); }

  N norm() const { return of(m.norm == Norm::kLayerNorm ? 2 : 1) * of(m.hidden); }

  // Weights that multiply activations, from which floating-point operations are counted.
  N attention_matrices() const {
    const N hidden = of(m.hidden);
    const N heads = of(m.heads);
    if (m.mla.enabled) {
      // DeepSeek-V2 (arXiv:2405.04434), section 2.1. The rotary part of the key is shared by all
      // heads.
      const N qk_dim = of(m.mla.qk_nope_head_dim) + of(m.mla.qk_rope_head_dim);
      const N q_rank = of(m.mla.q_lora_rank);
      const N kv_rank = of(m.mla.kv_lora_rank);
      const N query = m.mla.q_lora_rank == 0 ? hidden * heads * qk_dim
                                             : hidden * q_rank + q_rank * heads * qk_dim;
      const N key_value_down = hidden * (kv_rank + of(m.mla.qk_rope_head_dim));
      const N key_value_up = kv_rank * heads * (of(m.mla.qk_nope_head_dim) + of(m.mla.v_head_dim));
      return query + key_value_down + key_value_up + heads * of(m.mla.v_head_dim) * hidden;
    }
    const N query = hidden * heads * of(m.head_dim);
    const N key_value = of(2) * hidden * of(m.kv_heads) * of(m.head_dim);
    return query + key_value + query;  // the output projection is as large as the query's
  }

  N attention_vectors() const {
    N n = m.attention_out_bias ? of(m.hidden) : of(0);
    if (m.mla.enabled) {
      n += of(m.mla.q_lora_rank) + of(m.mla.kv_lora_rank);  // a norm after each projection down
      if (m.qkv_bias) {                                     // only on the projections down
        n += of(m.mla.q_lora_rank) + of(m.mla.kv_lora_rank) + of(m.mla.qk_rope_head_dim);
      }
      return n;
    }
    if (m.qkv_bias) n += (of(m.heads) + of(2) * of(m.kv_heads)) * of(m.head_dim);
    if (m.qk_norm) n += of(2) * of(m.head_dim);
    return n;
  }

  N attention() const { return attention_matrices() + attention_vectors(); }

  N mlp_matrices(std::int64_t ffn) const {
    return of(m.gated_mlp ? 3 : 2) * of(m.hidden) * of(ffn);
  }

  N dense_mlp() const {
    const N bias = of(m.gated_mlp ? 2 : 1) * of(m.ffn) + of(m.hidden);
    return mlp_matrices(m.ffn) + (m.mlp_bias ? bias : of(0));
  }

  N expert() const { return mlp_matrices(m.moe.expert_ffn); }
  N shared_experts() const { return of(m.moe.shared_experts) * expert(); }
  N router_matrix() const { return of(m.hidden) * of(m.moe.experts); }
  N router() const {
    return router_matrix() + (m.moe.router_correction_bias ? of(m.moe.experts) : of(0));
  }

  N layer(bool is_moe) const {
    const N mlp = is_moe ? of(m.moe.experts) * expert() + shared_experts() + router() : dense_mlp();
    return of(2) * norm() + attention() + mlp;
  }

  N embedding() const {
    const N learned = m.positions == Positions::kLearned ? of(m.max_positions) : of(0);
    return (of(m.vocab) + learned) * of(m.hidden);
  }
  N head_matrix() const { return of(m.vocab) * of(m.hidden); }
  N head() const { return m.tied_embeddings ? of(0) : head_matrix(); }

  N dense_layers() const { return of(m.layers - m.moe_layers()); }

  N total() const {
    return embedding() + dense_layers() * layer(false) + of(m.moe_layers()) * layer(true) + norm() +
           head();
  }

  // Weights that multiply the activations of one token, including the vocabulary head (tied or
  // not). The embedding does not count, because a look-up has no multiplication.
  N matrices_per_token() const {
    const N experts = of(m.moe.experts_per_token + m.moe.shared_experts) * expert();
    return of(m.layers) * attention_matrices() + dense_layers() * mlp_matrices(m.ffn) +
           of(m.moe_layers()) * (router_matrix() + experts) + head_matrix();
  }
};

using Exact = Count<std::int64_t>;

struct Bound {
  std::string_view field;
  std::int64_t value;
  std::int64_t low;
  std::int64_t high;
};

Result<void> check_bounds(std::initializer_list<Bound> bounds) {
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.low && bound.value <= bound.high) continue;
    return field_error(bound.field, "got {}; want an integer from {} to {}", bound.value, bound.low,
                       bound.high);
  }
  return {};
}

}  // namespace

std::int64_t ModelSpec::norm_params() const { return Exact{*this}.norm(); }
std::int64_t ModelSpec::attention_params() const { return Exact{*this}.attention(); }
std::int64_t ModelSpec::dense_mlp_params() const { return Exact{*this}.dense_mlp(); }
std::int64_t ModelSpec::expert_params() const { return is_moe() ? Exact{*this}.expert() : 0; }
std::int64_t ModelSpec::shared_expert_params() const {
  return is_moe() ? Exact{*this}.shared_experts() : 0;
}
std::int64_t ModelSpec::router_params() const { return is_moe() ? Exact{*this}.router() : 0; }
std::int64_t ModelSpec::layer_params(std::int64_t layer) const {
  return Exact{*this}.layer(layer_is_moe(layer));
}
std::int64_t ModelSpec::embedding_params() const { return Exact{*this}.embedding(); }
std::int64_t ModelSpec::head_params() const { return Exact{*this}.head(); }
std::int64_t ModelSpec::total_params() const { return Exact{*this}.total(); }

std::int64_t ModelSpec::active_params() const {
  const std::int64_t idle_experts = moe_layers() * (moe.experts - moe.experts_per_token);
  return total_params() - idle_experts * expert_params();
}

double ModelSpec::mean_context(std::int64_t seq_len) const {
  const auto length = static_cast<double>(seq_len);
  if (sliding_window == 0 || sliding_window >= seq_len) return length / 2;
  const auto window = static_cast<double>(sliding_window);
  const double full = static_cast<double>(full_layers) / static_cast<double>(layers);
  return full * length / 2 + (1 - full) * window * (1 - window / (2 * length));
}

double ModelSpec::forward_flops_per_token(std::int64_t seq_len) const {
  const auto qk_dim =
      static_cast<double>(mla.enabled ? mla.qk_nope_head_dim + mla.qk_rope_head_dim : head_dim);
  const auto v_dim = static_cast<double>(mla.enabled ? mla.v_head_dim : head_dim);
  // Scores, then their product with the values.
  const double attention_per_layer =
      2 * static_cast<double>(heads) * (qk_dim + v_dim) * mean_context(seq_len);
  return 2 * Count<double>{*this}.matrices_per_token() +
         static_cast<double>(layers) * attention_per_layer;
}

Result<void> ModelSpec::validate() const {
  // The limits are so small that no product of two or three sizes overflows, not even in parts that
  // total_params() leaves out.
  COPUS_TRY_VOID(check_bounds({{"layers", layers, 1, 10'000},
                               {"hidden", hidden, 1, 1'000'000},
                               {"ffn", ffn, 1, 10'000'000},
                               {"heads", heads, 1, 100'000},
                               {"kv_heads", kv_heads, 1, 100'000},
                               {"head_dim", head_dim, 1, 100'000},
                               {"vocab", vocab, 1, 100'000'000},
                               {"max_positions", max_positions, 1, 1'000'000'000},
                               {"moe.experts", moe.experts, 0, 100'000}}));
  if (mla.enabled) {
    COPUS_TRY_VOID(check_bounds({{"mla.q_lora_rank", mla.q_lora_rank, 0, 1'000'000},
                                 {"mla.kv_lora_rank", mla.kv_lora_rank, 1, 1'000'000},
                                 {"mla.qk_nope_head_dim", mla.qk_nope_head_dim, 1, 100'000},
                                 {"mla.qk_rope_head_dim", mla.qk_rope_head_dim, 1, 100'000},
                                 {"mla.v_head_dim", mla.v_head_dim, 1, 100'000}}));
  }
  if (is_moe()) {
    COPUS_TRY_VOID(check_bounds({{"moe.experts_per_token", moe.experts_per_token, 1, moe.experts},
                                 {"moe.expert_ffn", moe.expert_ffn, 1, 10'000'000},
                                 {"moe.shared_experts", moe.shared_experts, 0, 10'000},
                                 {"moe.first_dense_layers", moe.first_dense_layers, 0, layers - 1},
                                 {"moe.layer_step", moe.layer_step, 1, layers},
                                 {"moe.layer_offset", moe.layer_offset, 0, moe.layer_step - 1}}));
    if (moe_layers() == 0) {
      return field_error("moe.layer_step", "got {}, which leaves no layer with experts; want less",
                         moe.layer_step);
    }
  }
  if (heads % kv_heads != 0) {
    return field_error("kv_heads", "got {}; want a divisor of heads ({})", kv_heads, heads);
  }
  if (const double total = Count<double>{*this}.total(); !(total <= kMaxParams)) {
    return field_error("total parameters", "got {:.3g}; want at most {:.0e}", total, kMaxParams);
  }
  return {};
}

}  // namespace copus
