// Dataset: the order of samples. Sample i is a function of the files, the sequence length, the seed
// and i alone, so that any layout, any switch of layout and any resume sees the same samples: none
// lost, none twice.
//
// Tokens of all files in the order given are cut into consecutive sequences; each needs one token
// more, its last target. The last `held_out` of the sequences are never trained on. Each pass over
// the rest (an epoch) has its own permutation of them, computed per index, never stored.
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
  std::int64_t vocab = 256;  // a token that is not below it is an error
  double held_out = 0.05;    // share of sequences kept for evaluation; at least one, unless 0
};

class Dataset {
 public:
  // `sources`: files, or the one word "builtin".
  static Result<Dataset> open(const std::vector<std::string>& sources,
                              const DatasetOptions& options);

  std::int64_t seq_len() const { return options_.seq_len; }
  std::int64_t epoch_samples() const { return train_; }  // sequences per pass
  std::int64_t eval_samples() const { return eval_; }
  std::int64_t tokens() const { return total_tokens_; }

  // Fills `out` (seq_len + 1 tokens: inputs are the first seq_len, targets the last) with training
  // sample `index` >= 0, over any number of epochs. The error names the file, the position and the
  // token.
  Result<void> sample(std::int64_t index, std::span<std::int64_t> out) const;
  // The same for held-out sequence `index` in [0, eval_samples()).
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
