#include "copus/train/run/start.h"

#include <algorithm>
#include <future>
#include <limits>

#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/run_state.h"
#include "copus/train/comm/agree.h"
#include "copus/train/device/host_memory.h"
#include "copus/train/move/restore.h"
#include "copus/train/options/going_on.h"

namespace copus {
namespace {

// Ranks that cannot reach each other are no bad input: starting again may help.
template <typename T>
T connected(GroupCache& groups, Result<T> made) {
  if (made) return std::move(made).value();
  groups.rendezvous().activity->over();
  throw CommError(made.error().message);
}

const Comm* everyone(GroupCache& groups) {
  std::vector<int> all(static_cast<std::size_t>(groups.rendezvous().world_size));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return connected(groups, groups.group("world", all));
}

// A move holds two layouts; the memory for them is taken one by one.
void reserve_for_moves(const RunOptions& options, const TrainerOptions& trainer,
                       const RunStart& start) {
  if (options.adapt.controller.policy.adapt != Adapt::kFull) return;
  reserve_memory(start.adaptation->largest_bytes, trainer.ranks_per_node);
}

// The newest first, as rank 0 sees them.
Result<std::vector<std::string>> candidates(const Comm& world, const RunOptions& options) {
  Json told;
  if (world.rank() == 0) {
    const auto found = list_checkpoints(options.run_dir);
    told["error"] = found ? "" : found.error().message;
    told["folders"] = Json::array();
    if (found) {
      for (const PublishedCheckpoint& c : *found) told["folders"].push_back(c.folder);
    }
  }
  const Json heard =
      Json::parse(from_rank_0(world, options.trainer.device, world.rank() == 0 ? told.dump() : ""));
  if (const std::string error = heard.at("error"); !error.empty()) return Error{error};
  std::vector<std::string> folders = heard.at("folders");
  return std::vector<std::string>(folders.rbegin(), folders.rend());
}

void take_reached(const Manifest& manifest, const RunState& state, RunStart& start) {
  start.step = manifest.step;
  start.samples = manifest.samples;
  start.tokens = state.tokens.value_or(manifest.samples * manifest.seq_len);
  start.data_hash = state.data_hash;
  start.loss = state.loss;
  start.controller = state.controller;
}

}  // namespace

Result<std::unique_ptr<Trainer>> restore_verified(GroupCache& groups, const TrainerOptions& options,
                                                  const CheckpointReader& reader) {
  const Activity::Scope loads(*groups.rendezvous().activity, Doing::kLoading);
  const auto rank = static_cast<std::size_t>(groups.rendezvous().rank);
  const auto ranks = static_cast<std::size_t>(groups.rendezvous().world_size);
  const auto verify_mine = [&reader, rank, ranks]() -> Result<void> {
    const std::vector<CheckpointFile>& files = reader.manifest().files;
    for (std::size_t i = rank; i < files.size(); i += ranks) {
      COPUS_TRY_VOID(verify_file(reader.folder(), files[i]));
    }
    return {};
  };
  std::future<Result<void>> verified = std::async(std::launch::async, verify_mine);
  Result<std::unique_ptr<Trainer>> restored = restore_trainer(groups, options, reader);
  COPUS_TRY_VOID(verified.get());
  return restored;
}

Result<RunStart> prepare_run(GroupCache& groups, const RunOptions& options,
                             TrainerOptions& trainer) {
  RunStart start;
  if (options.adapt.on()) keep_freed_memory();
  if (!options.adapt.on() && !options.adapt.choose_plan) return start;
  COPUS_TRY(start.adaptation, prepare_adaptation(options.adapt, groups, trainer));
  start.cluster = start.adaptation->cluster;
  if (!options.adapt.on()) start.adaptation.reset();  // the plan was all there was to decide
  return start;
}

Result<void> make_trainer(GroupCache& groups, const RunOptions& options,
                          const TrainerOptions& trainer, RunStart& start) {
  reserve_for_moves(options, trainer, start);  // for this layout
  COPUS_TRY(start.trainer, Trainer::create(groups, trainer));
  reserve_for_moves(options, trainer, start);  // for one to move to
  return {};
}

Result<RunStart> resume_run(GroupCache& groups, const RunOptions& options, const Dataset& data,
                            const std::function<void(const std::string&)>& say) {
  const Comm* world = everyone(groups);
  world->meet();  // some may come from a save
  COPUS_TRY(const std::vector<std::string> folders, candidates(*world, options));
  const auto vote = [&](const std::string& trouble) {
    const std::string mine =
        trouble.empty() ? "" : fmt::format("rank {}: {}", world->rank(), trouble);
    world->meet();  // not all have read as much, nor as fast
    return first_said(*world, options.trainer.device, mine);
  };
  std::string skipped;
  const auto skip = [&](const std::string& folder, const std::string& why) {
    say(fmt::format("CHECKPOINT NOT USED: {}: {}", folder, why));
    skipped += fmt::format("{}{}: {}", skipped.empty() ? "" : "; ", folder, why);
  };
  for (const std::string& folder : folders) {
    Result<CheckpointReader> reader = CheckpointReader::open(folder);
    if (const std::string why = vote(reader ? "" : reader.error().message); !why.empty()) {
      skip(folder, why);
      continue;
    }
    // From here on all ranks have the same manifest: what does not go with it is an error of all.
    COPUS_TRY(const RunState state, run_state_from_json(reader->manifest().run, "manifest: run"));
    COPUS_TRY(RunOptions here, options_to_go_on(options, data, world->size(), *reader, state));
    COPUS_TRY(RunStart start, prepare_run(groups, here, here.trainer));
    take_reached(reader->manifest(), state, start);
    reserve_for_moves(here, here.trainer, start);
    COPUS_TRY_VOID(check_trainable(here.trainer));
    // Before the checkpoint is read: that ranks cannot reach each other is no fault of its.
    connected(groups, Mesh::create(groups, here.trainer.plan, here.trainer.model));
    Result<std::unique_ptr<Trainer>> restored = restore_verified(groups, here.trainer, *reader);
    if (const std::string why = vote(restored ? "" : restored.error().message); !why.empty()) {
      skip(folder, why);
      continue;
    }
    start.trainer = std::move(restored).value();
    reserve_for_moves(here, here.trainer, start);
    start.resumed = true;
    start.from = folder;
    start.skipped = skipped;
    // Newer ones that could not be used would be taken for the newest again, and outlive better
    // ones.
    if (world->rank() == 0) {
      for (const std::string& newer : folders) {
        if (newer == folder) break;
        if (const Result<void> moved = set_aside(options.run_dir, newer); !moved) {
          say(moved.error().message);
        }
      }
    }
    return start;
  }
  if (!folders.empty()) {
    return field_error("--resume", "none of the {} checkpoints in {} can be used: {}",
                       folders.size(), options.run_dir, skipped);
  }
  say(fmt::format("{} has no checkpoint yet: beginning at step 0", options.run_dir));
  TrainerOptions trainer = options.trainer;
  COPUS_TRY(RunStart start, prepare_run(groups, options, trainer));
  COPUS_TRY_VOID(make_trainer(groups, options, trainer, start));
  start.resumed = true;
  return start;
}

}  // namespace copus
