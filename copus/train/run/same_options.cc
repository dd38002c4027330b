#include "copus/train/run/same_options.h"

#include <string>
#include <string_view>
#include <vector>

#include "copus/base/text.h"
#include "copus/train/comm/agree.h"
#include "copus/train/options/run_data.h"

namespace copus {
namespace {

// What must be the same on every rank, a line each. Paths may differ between machines, what they
// lead to may not.
std::string common_options(const RunOptions& options, const Dataset& data) {
  std::string text;
  for (const std::string_view line : split(options.config, '\n')) {
    const std::string_view key = line.substr(0, line.find(' '));
    if (line.empty() || key == "model" || key == "data" || key == "run-dir") continue;
    text += fmt::format("{}\n", line);
  }
  const ModelSpec& m = options.trainer.model;
  text += fmt::format("shape = {} layers of {}, MLP {}, {}/{} heads of {}, vocabulary {}\n",
                      m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab);
  text += fmt::format(
      "kind = gated {}, tied {}, norm {} {}, positions {} {} {} {} {} {} {}, activation {}, biases "
      "{} {} "
      "{}, qk_norm {}, std {}\n",
      m.gated_mlp, m.tied_embeddings, static_cast<int>(m.norm), m.norm_eps,
      static_cast<int>(m.positions), m.rope_theta, static_cast<int>(m.rope_scaling.kind),
      m.rope_scaling.factor, m.rope_scaling.low_freq_factor, m.rope_scaling.high_freq_factor,
      m.rope_scaling.original_max_positions, static_cast<int>(m.activation), m.qkv_bias,
      m.attention_out_bias, m.mlp_bias, m.qk_norm, m.init_std);
  return text + fmt::format("tokens of data = {}\nsamples = {:016x}\n", data.tokens(),
                            data_fingerprint(data));
}

}  // namespace

Result<void> check_same_options(const Rendezvous& where, const RunOptions& options,
                                const Dataset& data) {
  const std::string key = "copus/options";
  const std::string mine = common_options(options, data);
  if (where.rank == 0) {
    tell(where, key, mine);
    return {};
  }
  const std::string first = hear(where, key);
  if (mine == first) return {};
  const std::vector<std::string_view> ours = split(mine, '\n'), theirs = split(first, '\n');
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  return make_error("rank {}: got {}; want {}, as rank 0 has it", where.rank,
                    i < ours.size() ? ours[i] : "", i < theirs.size() ? theirs[i] : "");
}

}  // namespace copus
