#include "copus/train/options/run_data.h"

#include <vector>

namespace copus {

Result<Dataset> open_data(const RunOptions& options) {
  const TrainerOptions& t = options.trainer;
  COPUS_TRY(Dataset data, Dataset::open(options.data, {.seq_len = t.seq_len,
                                                       .seed = t.seed,
                                                       .vocab = t.model.vocab,
                                                       .held_out = options.held_out}));
  // A file of another tokenizer shows in its first sample.
  std::vector<std::int64_t> first(static_cast<std::size_t>(t.seq_len + 1));
  COPUS_TRY_VOID(data.sample(0, first));
  if (options.eval_every > 0 && data.eval_samples() < 1) {
    return make_error(
        "--held-out: got {}, which is none of {} sequences; want more for --eval-every",
        options.held_out, data.epoch_samples());
  }
  return data;
}

}  // namespace copus
