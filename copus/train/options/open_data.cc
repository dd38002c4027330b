#include "copus/train/options/open_data.h"

#include <algorithm>
#include <vector>

#include "copus/base/hash.h"

namespace copus {

Result<Dataset> open_data(const RunOptions& options) {
  const TrainerOptions& t = options.trainer;
  COPUS_TRY(Dataset data, Dataset::open(options.data, {.seq_len = t.seq_len,
                                                       .seed = t.seed,
                                                       .vocab = t.model.vocab,
                                                       .held_out = options.held_out}));
  // Reads the first sample, which shows whether the file is from a tokenizer with more tokens.
  std::vector<std::int64_t> first(static_cast<std::size_t>(t.seq_len + 1));
  COPUS_TRY_VOID(data.sample(0, first));
  if (options.eval_every > 0 && data.eval_samples() < 1) {
    return field_error("--held-out",
                       "got {}, which holds out none of {} sequences; want more for --eval-every",
                       options.held_out, data.epoch_samples());
  }
  return data;
}

std::uint64_t data_fingerprint(const Dataset& data) {
  std::uint64_t hash = kNoHash;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(data.seq_len() + 1));
  constexpr std::int64_t kLooks = 64;
  const std::int64_t n = data.epoch_samples(), looks = std::min(kLooks, n);
  for (std::int64_t look = 0; look < looks; ++look) {
    const std::int64_t index = looks > 1 ? look * (n - 1) / (looks - 1) : 0;
    if (!data.sample(index, tokens)) continue;
    for (const std::int64_t token : tokens) {
      hash = add_to_hash(hash, static_cast<std::uint64_t>(token));
    }
  }
  return hash;
}

}  // namespace copus
