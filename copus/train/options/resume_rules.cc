#include "copus/train/options/resume_rules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "copus/base/checksum.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/same_model.h"
#include "copus/train/options/open_data.h"

namespace copus {
namespace {

// Checks that the run continues with the data that it had, unless --other-data is given. Paths and
// names do not matter: data with the same samples is the same.
Result<void> check_same_data(const RunOptions& options, const Dataset& data,
                             const CheckpointReader& reader, const RunState& state) {
  if (options.checkpoint.other_data || !state.fingerprint) return {};
  const std::uint64_t now = data_fingerprint(data);
  if (*state.fingerprint == now) return {};
  const Manifest& was = reader.manifest();
  const auto refused = [&](const char* field, const auto& got, const auto& want) {
    return field_error(field, "got {}; want {}, as in {}, or --other-data to go on with other data",
                       got, want, reader.folder());
  };
  if (data.seq_len() != was.seq_len) return refused("--seq-len", data.seq_len(), was.seq_len);
  if (options.trainer.seed != was.seed) return refused("--seed", options.trainer.seed, was.seed);
  return field_error(
      "--data",
      "got {} with --held-out {}, whose samples have the fingerprint {}; want those of "
      "{} ({}), or --other-data to go on with other data",
      fmt::join(options.data, " "), options.held_out, checksum_text(now), reader.folder(),
      checksum_text(*state.fingerprint));
}

// Checks that the run's current batch and layout are within the limits that are given now. A run
// that adapts may have left them already.
Result<void> check_still_allowed(const AdaptOptions& adapt, const TrainerOptions& trainer,
                                 const CheckpointOptions& given) {
  if (!given.batch_given &&
      (trainer.global_batch < adapt.lowest_batch || trainer.global_batch > adapt.highest_batch)) {
    return field_error("--batch-range",
                       "got {}:{}, without the run's current batch {}; want a range with it, or "
                       "--global-batch to go on at another batch",
                       adapt.lowest_batch, adapt.highest_batch, trainer.global_batch);
  }
  const bool allowed =
      given.plan_given || adapt.choose_plan ||
      std::any_of(adapt.spaces.begin(), adapt.spaces.end(),
                  [&](const PartialPlan& space) { return !space.contradicted_by(trainer.plan); });
  if (allowed) return {};
  return field_error(
      "--fix",
      "got pins that exclude {}, the run's current layout; want pins that allow it, or --plan to "
      "go on at another layout",
      short_name(trainer.plan));
}

// Sets the batch and layout with which the run continues. A run that adapts keeps those that it had
// reached, unless the user gives others.
Result<void> place(const RunOptions& options, const Manifest& manifest, const RunState& state,
                   int ranks, TrainerOptions& trainer, AdaptOptions& adapt) {
  const CheckpointOptions& given = options.checkpoint;
  // Imported weights have no optimizer state, and no batch or layout that a run had reached.
  const bool was_somewhere = adapt.on() && manifest.optimizer;
  if (was_somewhere && !given.batch_given) trainer.global_batch = manifest.global_batch;
  if (was_somewhere && !given.plan_given && manifest.plan.gpus() == ranks) {
    trainer.plan = manifest.plan;
    adapt.choose_plan = false;
  }
  if (was_somewhere) COPUS_TRY_VOID(check_still_allowed(adapt, trainer, given));
  if (!given.lr_given && state.base_batch) trainer.base_batch = *state.base_batch;
  if (adapt.choose_plan) return {};
  return trainer.plan.validate(trainer.model, ranks_as_cluster(ranks, trainer.ranks_per_node),
                               trainer.seq_len, trainer.global_batch);
}

}  // namespace

Result<RunOptions> options_to_go_on(const RunOptions& options, const Dataset& data, int ranks,
                                    const CheckpointReader& reader, const RunState& state) {
  COPUS_TRY_VOID(check_same_model(options.trainer.model, reader));
  COPUS_TRY_VOID(check_same_data(options, data, reader, state));
  RunOptions here = options;
  COPUS_TRY_VOID(place(options, reader.manifest(), state, ranks, here.trainer, here.adapt));
  return here;
}

Result<void> check_resume(const RunOptions& options, const Dataset& data, int ranks) {
  const auto found = list_checkpoints(options.run_dir);
  if (!found) return {};  // the ranks report this error
  for (auto checkpoint = found->rbegin(); checkpoint != found->rend(); ++checkpoint) {
    const Result<CheckpointReader> reader = CheckpointReader::open(checkpoint->folder);
    if (!reader) continue;
    const auto state = run_state_from_json(reader->manifest().run, "manifest: run");
    if (!state) return state.error();
    const auto here = options_to_go_on(options, data, ranks, *reader, *state);
    return here ? Result<void>() : here.error();
  }
  return {};
}

}  // namespace copus
