#include "copus/train/move/move.h"

#include <chrono>
#include <optional>

#include "copus/base/seconds_since.h"
#include "copus/train/comm/agree.h"
#include "copus/train/device/device.h"
#include "copus/train/move/host_state.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

MoveResult move_run(Trainer& trainer, GroupCache& groups, const Configuration& to,
                    const MoveOptions& how) {
  const auto begin = Clock::now();
  const Activity::Scope moves(trainer.mesh().world->activity(), Doing::kMoving);
  MoveResult result;
  const TrainerOptions now = trainer.options();
  TrainerOptions next = now;
  next.plan = to.plan;
  next.global_batch = to.global_batch;
  const auto finish = [&] {
    result.pause = seconds_since(begin);
    return result;
  };
  if (same_placement(now.plan, to.plan)) {
    const Result<void> reshaped = trainer.reshape(next);
    result.done = reshaped.has_value();
    if (!result.done) result.error = reshaped.error().message;
    return finish();
  }

  trainer.before_change();
  // Until the second vote, the old layout is only read.
  const at::Device device = torch_device(now.device);
  const Comm& world = *trainer.mesh().world;
  std::unique_ptr<Layout> fresh;
  const auto vote = [&](const std::string& trouble) {
    result.error = first_trouble(world, now.device, trouble);
    return result.error.empty();
  };
  const auto attempt = [](const auto& work) -> std::string {
    try {
      const Result<void> done = work();
      return done ? "" : done.error().message;
    } catch (const CommError&) {
      throw;  // the ranks cannot vote without messages
    } catch (const std::exception& error) {
      return first_line(error);
    }
  };
  LayoutChange change{.model = now.model,
                      .from = now.plan,
                      .to = to.plan,
                      .bucket_elements = now.bucket_elements,
                      .bf16 = now.compute == Compute::kBf16,
                      .ranks_per_node = now.ranks_per_node};
  TransferPlan transfer;
  std::optional<Staging> staging;
  const auto reach = [&](MovePhase phase) {
    if (how.hook) how.hook(phase);
  };
  auto phase_begin = Clock::now();
  const auto lap = [&] {
    const Seconds time = seconds_since(phase_begin);
    phase_begin = Clock::now();
    return time;
  };
  const std::size_t groups_before = groups.count();
  const std::string unprepared = attempt([&]() -> Result<void> {
    COPUS_TRY_VOID(check_trainable(next));
    reach(MovePhase::kGroups);
    COPUS_TRY_VOID(Mesh::create(groups, to.plan, now.model));
    result.groups = lap();
    reach(MovePhase::kAllocate);
    COPUS_TRY(fresh, Layout::create(groups, next, ParameterStart::kUnset));
    staging.emplace(device, how.reshard);
    transfer = plan_transfer(change, trainer.mesh().rank);
    return {};
  });
  world.meet();  // a rank that cannot reach another one arrives here only after its time limit
  if (!vote(unprepared)) {
    fresh.reset();
    groups.forget_since(groups_before);
    return finish();
  }
  result.allocate = lap();

  // `peers` must live until all ranks have read. It cannot read GPU memory.
  const bool on_host = device.is_cpu();
  const PeerMemory peers(
      world, device, on_host ? state_addresses(trainer.layout()) : std::vector<std::int64_t>(),
      on_host ? how.reshard.may_read : [](int) { return false; });
  const std::string untransferred = attempt([&]() -> Result<void> {
    result.bytes_read = reshard(transfer, change, trainer.layout(), *fresh, world, peers, *staging);
    reach(MovePhase::kTransfer);
    return {};
  });
  if (!vote(untransferred)) return finish();
  result.transfer = lap();

  // From here on the move cannot be undone, because the old state is freed before the new state is
  // copied to the device.
  reach(MovePhase::kCommit);
  trainer.adopt(next, std::move(fresh));
  result.commit = lap();
  result.bytes_moved = transfer.moved;
  result.done = true;
  return finish();
}

}  // namespace copus
