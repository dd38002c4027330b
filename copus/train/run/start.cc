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
#include "copus/train/options/resume_rules.h"

namespace copus {
namespace {

// Throws a CommError if the group could not be made. That ranks cannot reach each other is not an
// error of the input, and starting again may help.
template <typename T>
T connected(GroupCache& groups, Result<T> made) {
  if (made) return std::move(made).value();
  groups.rendezvous().activity->over();
  throw CommError(made.error().message);
}

// Reserves host memory for one layout. A move needs memory for two, so a run that may move calls
// this once for each.
void reserve_for_moves(const RunOptions& options, const TrainerOptions& trainer,
                       const std::optional<Adaptation>& adaptation) {
  if (options.adapt.controller.policy.adapt != Adapt::kFull) return;
  reserve_memory(static_cast<std::int64_t>(adaptation->largest.v), trainer.ranks_per_node);
}

// Returns the folders of the run's checkpoints as rank 0 lists them, the newest first.
Result<std::vector<std::string>> list_newest_first(const Comm& world, const RunOptions& options) {
  const auto list = [&]() -> Result<std::string> {
    COPUS_TRY(const std::vector<PublishedCheckpoint> found, list_checkpoints(options.run_dir));
    Json folders = Json::array();
    for (auto c = found.rbegin(); c != found.rend(); ++c) folders.push_back(c->folder);
    return folders.dump();
  };
  const std::string told = world.rank() == 0 ? result_to_text(list()) : "";
  COPUS_TRY(const std::string heard,
            result_from_text(from_rank_0(world, options.trainer.device, told)));
  return Json::parse(heard).get<std::vector<std::string>>();
}

RunStart start_with(std::unique_ptr<Trainer> trainer, PreparedRun prepared) {
  RunStart start;
  start.trainer = std::move(trainer);
  start.cluster = std::move(prepared.cluster);
  start.adaptation = std::move(prepared.adaptation);
  return start;
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

Result<PreparedRun> prepare_run(GroupCache& groups, const RunOptions& options) {
  PreparedRun prepared;
  prepared.trainer = options.trainer;
  if (options.adapt.on()) keep_freed_memory();
  if (!options.adapt.on() && !options.adapt.choose_plan) return prepared;
  COPUS_TRY(prepared.adaptation, prepare_adaptation(options.adapt, groups, prepared.trainer));
  prepared.cluster = prepared.adaptation->cluster;
  if (!options.adapt.on()) prepared.adaptation.reset();  // only the plan had to be chosen
  return prepared;
}

Result<RunStart> begin_run(GroupCache& groups, const RunOptions& options, PreparedRun prepared) {
  reserve_for_moves(options, prepared.trainer, prepared.adaptation);  // for this layout
  COPUS_TRY(std::unique_ptr<Trainer> trainer, Trainer::create(groups, prepared.trainer));
  reserve_for_moves(options, prepared.trainer, prepared.adaptation);  // for the next layout
  return start_with(std::move(trainer), std::move(prepared));
}

Result<RunStart> resume_run(GroupCache& groups, const RunOptions& options, const Dataset& data,
                            const std::function<void(const std::string&)>& say) {
  const Comm* world = connected(groups, groups.world());
  world->meet();  // some ranks may come late, from a save
  COPUS_TRY(const std::vector<std::string> folders, list_newest_first(*world, options));
  const auto vote = [&](const std::string& trouble) {
    world->meet();  // the ranks need different times to read their parts
    return first_trouble(*world, options.trainer.device, trouble);
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
    // From here on all ranks have the same manifest, so options that do not fit it are an error on
    // all ranks.
    COPUS_TRY(const RunState state, run_state_from_json(reader->manifest().run, "manifest: run"));
    COPUS_TRY(const RunOptions here,
              options_to_go_on(options, data, world->size(), *reader, state));
    COPUS_TRY(PreparedRun prepared, prepare_run(groups, here));
    const TrainerOptions& trainer = prepared.trainer;
    reserve_for_moves(here, trainer, prepared.adaptation);
    COPUS_TRY_VOID(check_trainable(trainer));
    // Connects the ranks before the checkpoint is read, so that ranks that cannot reach each other
    // do not make the checkpoint look damaged.
    connected(groups, Mesh::create(groups, trainer.plan, trainer.model));
    Result<std::unique_ptr<Trainer>> restored = restore_verified(groups, trainer, *reader);
    if (const std::string why = vote(restored ? "" : restored.error().message); !why.empty()) {
      skip(folder, why);
      continue;
    }
    reserve_for_moves(here, trainer, prepared.adaptation);
    RunStart start = start_with(std::move(restored).value(), std::move(prepared));
    take_reached(reader->manifest(), state, start);
    start.resumed = true;
    start.from = folder;
    start.skipped = skipped;
    // Sets aside the newer checkpoints that could not be used. Otherwise the next start would try
    // them first again, and retention would keep them and remove better ones.
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
    return field_error("--resume", "no checkpoint in {} can be used: {}", options.run_dir, skipped);
  }
  say(fmt::format("{} has no checkpoint yet: beginning at step 0", options.run_dir));
  COPUS_TRY(PreparedRun prepared, prepare_run(groups, options));
  COPUS_TRY(RunStart start, begin_run(groups, options, std::move(prepared)));
  start.resumed = true;
  return start;
}

}  // namespace copus
