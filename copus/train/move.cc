// Trainer::move(): a live run goes on with another layout.
#include <chrono>
#include <optional>

#include "copus/base/seconds_since.h"
#include "copus/train/agree.h"
#include "copus/train/host_state.h"
#include "copus/train/trainer.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

MoveResult Trainer::move(GroupCache& groups, const Configuration& to, const ReshardOptions& how) {
  const auto begin = Clock::now();
  const Activity::Scope moves(layout_->mesh.world->activity(), Doing::kMoving);
  MoveResult result;
  TrainerOptions next = options_;
  next.plan = to.plan;
  next.global_batch = to.global_batch;
  const auto finish = [&] {
    if (result.done) options_ = next;
    result.pause_s = seconds_since(begin);
    return result;
  };
  if (same_placement(options_.plan, to.plan)) {
    const Result<void> reshaped = layout_->reshape(next);
    result.done = reshaped.has_value();
    if (!result.done) result.error = reshaped.error().message;
    return finish();
  }

  if (before_change_) before_change_();
  // Until the second vote the old layout is only read.
  const Comm& world = *layout_->mesh.world;
  std::unique_ptr<Layout> fresh;
  const auto vote = [&](const std::string& trouble) {
    const std::string mine =
        trouble.empty() ? "" : fmt::format("rank {}: {}", mesh().rank, trouble);
    result.error = first_said(world, options_.device, mine);
    return result.error.empty();
  };
  const auto attempt = [](const auto& work) -> std::string {
    try {
      const Result<void> done = work();
      return done ? "" : done.error().message;
    } catch (const CommError&) {
      throw;  // no vote can be taken
    } catch (const std::exception& error) {
      return first_line(error);
    }
  };
  LayoutChange change{.model = options_.model,
                      .from = options_.plan,
                      .to = to.plan,
                      .bucket_elements = options_.bucket_elements,
                      .bf16 = options_.compute == Compute::kBf16,
                      .ranks_per_node = options_.ranks_per_node};
  TransferPlan transfer;
  std::optional<Staging> staging;
  auto phase = Clock::now();
  const auto lap = [&] {
    const double seconds = seconds_since(phase);
    phase = Clock::now();
    return seconds;
  };
  const std::size_t groups_before = groups.count();
  const std::string unprepared = attempt([&]() -> Result<void> {
    COPUS_TRY_VOID(check_trainable(next));
    if (move_hook_) move_hook_("groups");
    COPUS_TRY_VOID(Mesh::create(groups, to.plan, options_.model));
    result.groups_s = lap();
    if (move_hook_) move_hook_("allocate");
    COPUS_TRY(fresh, Layout::create(groups, next, ParameterStart::kUnset));
    staging.emplace(options_.device, how);
    transfer = plan_transfer(change, mesh().rank);
    return {};
  });
  world.meet();  // who could not reach another has waited its time for it
  if (!vote(unprepared)) {
    fresh.reset();
    groups.forget_since(groups_before);
    return finish();
  }
  result.allocate_s = lap();

  // Lives until all have read. A GPU's memory is none that a process could read.
  const bool on_host = options_.device.is_cpu();
  const PeerMemory peers(
      world, options_.device, on_host ? state_addresses(*layout_) : std::vector<std::int64_t>(),
      on_host ? how.may_read : [](int) { return false; });
  const std::string untransferred = attempt([&]() -> Result<void> {
    result.bytes_read = reshard(transfer, change, *layout_, *fresh, world, peers, *staging);
    if (move_hook_) move_hook_("transfer");
    return {};
  });
  if (!vote(untransferred)) return finish();
  result.transfer_s = lap();

  // The point of no return: the old state is freed before the new one takes its place on the
  // device.
  if (move_hook_) move_hook_("commit");
  layout_.reset();
  fresh->settle(next);
  layout_ = std::move(fresh);
  result.commit_s = lap();
  result.bytes_moved = transfer.moved;
  result.done = true;
  return finish();
}

}  // namespace copus
