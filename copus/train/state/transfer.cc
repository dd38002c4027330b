#include "copus/train/state/transfer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "copus/base/check.h"
#include "copus/train/state/holdings.h"

namespace copus {
namespace {

constexpr int kNobody = -1;

class Planner {
 public:
  Planner(const LayoutChange& change, int rank)
      : change_(change),
        rank_(rank),
        world_(static_cast<int>(change.from.gpus())),
        from_(change.model, change.from, change.bucket_elements),
        to_(change.model, change.to, change.bucket_elements),
        sends_(static_cast<std::size_t>(world_)),
        receives_(static_cast<std::size_t>(world_)) {
    plan_.sent.resize(static_cast<std::size_t>(world_));
    plan_.received.resize(static_cast<std::size_t>(world_));
  }

  TransferPlan run() && {
    for (const auto& [kind, tensor] : jobs()) assign(kind, tensor);
    plan_.moved = std::accumulate(plan_.sent.begin(), plan_.sent.end(), std::int64_t{0});
    plan_.sends = collect(sends_);
    plan_.receives = collect(receives_);
    std::sort(plan_.kept.begin(), plan_.kept.end());
    return std::move(plan_);
  }

 private:
  using Job = std::pair<StateKind, std::size_t>;  // of one tensor

  // State that few ranks hold comes first. State that many ranks hold comes last: its senders can
  // be chosen so that they even out the load.
  std::vector<Job> jobs() const {
    std::vector<Job> jobs;
    for (const StateKind kind : {StateKind::kOptimizer, StateKind::kValues}) {
      for (std::size_t i = 0; i < from_.tensors(); ++i) jobs.emplace_back(kind, i);
    }
    const auto copies = [&](const Job& job) { return from_.copies(job.second, job.first); };
    std::stable_sort(jobs.begin(), jobs.end(),
                     [&](const Job& a, const Job& b) { return copies(a) < copies(b); });
    return jobs;
  }

  void assign(StateKind kind, std::size_t tensor) {
    const auto held = from_.held(tensor, kind);
    for (const auto& needed_lane : to_.needed(tensor, kind, change_.bf16)) {
      for (const auto& held_lane : held) {
        for (const Holding& needed : needed_lane) {
          auto source = std::partition_point(
              held_lane.begin(), held_lane.end(),
              [&](const Holding& h) { return ends_before(h.stripe, needed.stripe); });
          for (; source != held_lane.end(); ++source) {
            if (ends_before(needed.stripe, source->stripe)) break;
            const Stripe both = overlap(source->stripe, needed.stripe);
            if (both.empty()) continue;  // they have no columns in common
            assign_part({kind, tensor, both}, source->ranks, needed.ranks);
          }
        }
      }
    }
  }

  // Every rank of `needers` receives the part from one of `holders`. A rank that is a holder itself
  // keeps it.
  void assign_part(const StatePart& part, const RankBlock& holders, const RankBlock& needers) {
    const std::int64_t bytes = part.stripe.size() * bytes_per_element(part.kind, change_.bf16);
    queue_.clear();
    const bool one_holder = holders.count() == 1;
    to_.for_each_rank(needers, [&](int to) {
      if (from_.contains(holders, to)) {
        if (to == rank_) plan_.kept.push_back(part);
        return;
      }
      int from = one_holder ? kNobody : least_loaded_on_node(holders, to);
      if (from == kNobody) from = least_loaded(holders);
      load(from) += bytes;
      plan_.received[static_cast<std::size_t>(to)] += bytes;
      if (from == rank_) add(sends_, to, part, bytes);
      if (to == rank_) add(receives_, from, part, bytes);
    });
  }

  int least_loaded_on_node(const RankBlock& holders, int to) {
    const int first = to / change_.ranks_per_node * change_.ranks_per_node;
    const int end = std::min(world_, first + change_.ranks_per_node);
    int best = kNobody;
    for (int rank = first; rank < end; ++rank) {
      if (!from_.contains(holders, rank)) continue;
      if (best == kNobody || load(rank) < load(best)) best = rank;
    }
    return best;
  }

  // `queue_` is a heap of holders by the load that each had when it was put in. Loads only grow. So
  // if the first entry has the present load of its holder, this holder is the least loaded of all.
  int least_loaded(const RankBlock& holders) {
    if (queue_.empty()) {
      from_.for_each_rank(holders, [&](int rank) { queue_.emplace_back(load(rank), rank); });
      std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
    }
    while (queue_.front().first != load(queue_.front().second)) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      queue_.back().first = load(queue_.back().second);
      std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
    }
    return queue_.front().second;
  }

  std::int64_t& load(int rank) { return plan_.sent[static_cast<std::size_t>(rank)]; }

  static void add(std::vector<Transfer>& transfers, int peer, const StatePart& part,
                  std::int64_t bytes) {
    Transfer& transfer = transfers[static_cast<std::size_t>(peer)];
    transfer.peer = peer;
    transfer.bytes += bytes;
    transfer.parts.push_back(part);
  }

  static std::vector<Transfer> collect(std::vector<Transfer>& by_peer) {
    std::vector<Transfer> result;
    for (Transfer& transfer : by_peer) {
      if (transfer.parts.empty()) continue;
      std::sort(transfer.parts.begin(), transfer.parts.end());
      result.push_back(std::move(transfer));
    }
    return result;
  }

  const LayoutChange& change_;
  int rank_;
  int world_;
  Holdings from_, to_;
  TransferPlan plan_;
  std::vector<Transfer> sends_, receives_;  // by peer
  std::vector<std::pair<std::int64_t, int>> queue_;
};

}  // namespace

std::int64_t bytes_per_element(StateKind kind, bool bf16) {
  if (kind == StateKind::kValues) return bf16 ? 2 : 4;
  return bf16 ? 12 : 8;
}

TransferPlan plan_transfer(const LayoutChange& change, int rank) {
  COPUS_CHECK(change.from.gpus() == change.to.gpus());
  COPUS_CHECK(rank >= 0 && rank < change.from.gpus() && change.ranks_per_node >= 1);
  return Planner(change, rank).run();
}

}  // namespace copus
