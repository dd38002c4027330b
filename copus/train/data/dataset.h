// Dataset: the order of samples. Sample i depends on the files, the sequence length, the seed and i
// alone. So a run sees the same samples at any layout, and also after a change of layout or a
// resume: it loses no sample and repeats none.
//
// The tokens of all files, in the given order, are cut into consecutive sequences. A sequence also
// needs the token after its end, as its last target. The last sequences (the share `held_out`) are
// never trained on. Each pass over the others (an epoch) takes them in a different order. The order
// is a permutation that is computed per index and never stored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/data/token_file.h"

namespace copus {

struct DatasetOptions {
  std::int64_t seq_len = 1024;
  std::uint64_t seed = 1;
  std::int64_t vocab = 256;  // a token of this value or more is an error
  double held_out = 0.05;    // share of sequences kept for evaluation; unless 0, at least one
};

class Dataset {
 public:
  // `sources`: files, or only the word "builtin".
  static Result<Dataset> open(const std::vector<std::string>& sources,
                              const DatasetOptions& options);

  std::int64_t seq_len() const { return options_.seq_len; }
  std::int64_t epoch_samples() const { return train_; }  // sequences per pass
  std::int64_t eval_samples() const { return eval_; }
  std::int64_t tokens() const { return total_tokens_; }

  // Fills `out` with training sample `index`, which counts on over all epochs. The first seq_len
  // tokens of `out` are the inputs, the last seq_len the targets. The error names the file, the
  // position and the token. REQUIRES: index >= 0, and `out` has seq_len + 1 elements.
  Result<void> sample(std::int64_t index, std::span<std::int64_t> out) const;
  // The same for a held-out sequence. REQUIRES: `index` is in [0, eval_samples()).
  Result<void> eval_sample(std::int64_t index, std::span<std::int64_t> out) const;

 private:
  Result<void> sequence(std::int64_t sequence, std::span<std::int64_t> out) const;

  DatasetOptions options_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  // first token of each file
  std::int64_t total_tokens_ = 0;
  std::int64_t train_ = 0;
  std::int64_t eval_ = 0;
};

}  // namespace copus
