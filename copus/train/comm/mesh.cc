#include "copus/train/comm/mesh.h"

#include <algorithm>
#include <numeric>

namespace copus {

Result<const Comm*> GroupCache::group(const std::string& name, const std::vector<int>& members) {
  const auto key = std::make_pair(name, members);
  if (const auto found = groups_.find(key); found != groups_.end()) return found->second.get();
  COPUS_TRY(auto created, Comm::create(rendezvous_, name, members, attempt_));
  made_.push_back(key);
  return groups_.emplace(key, std::move(created)).first->second.get();
}

Result<const Comm*> GroupCache::world() {
  std::vector<int> all(static_cast<std::size_t>(rendezvous_.world_size));
  std::iota(all.begin(), all.end(), 0);
  return group("world", all);
}

void GroupCache::forget_since(std::size_t count) {
  for (; made_.size() > count; made_.pop_back()) groups_.erase(made_.back());
  ++attempt_;
}

void GroupCache::shut_down() {
  for (; !made_.empty(); made_.pop_back()) {
    const auto group = groups_.find(made_.back());
    group->second->shut_down();
    groups_.erase(group);
  }
}

namespace {

std::vector<int> to_ints(const std::vector<std::int64_t>& ranks) {
  return {ranks.begin(), ranks.end()};
}

// Makes the groups of neighbouring stages. All ranks go through the edges of the pipeline's ring in
// the same order, so that no two stages wait for each other at different edges.
Result<void> connect_stages(GroupCache& groups, const RankGrid& grid, Mesh& mesh) {
  const std::int64_t pp = mesh.plan.pp;
  const auto stage_rank = [&](std::int64_t stage) {
    Coordinates c = mesh.at;
    c.pp = stage;
    return static_cast<int>(grid.rank_of(c));
  };
  const std::int64_t edges = pp == 1 ? 0 : mesh.plan.vp > 1 ? pp : pp - 1;
  for (std::int64_t stage = 0; stage < edges; ++stage) {
    const std::int64_t next = (stage + 1) % pp;
    if (mesh.at.pp != stage && mesh.at.pp != next) continue;
    // Member 0 sends forward, member 1 sends backward.
    const std::vector<int> pair{stage_rank(stage), stage_rank(next)};
    COPUS_TRY(const Comm* forward, groups.group("pipeline forward", pair));
    COPUS_TRY(const Comm* backward, groups.group("pipeline backward", pair));
    if (mesh.at.pp == stage) {
      mesh.next_forward = forward;
      mesh.next_backward = backward;
    }
    if (mesh.at.pp == next) {
      mesh.previous_forward = forward;
      mesh.previous_backward = backward;
    }
  }
  return {};
}

}  // namespace

Result<Mesh> Mesh::create(GroupCache& groups, const ParallelPlan& plan, const ModelSpec& model) {
  Mesh mesh;
  mesh.plan = plan;
  mesh.rank = groups.rendezvous().rank;
  const RankGrid grid(plan);
  COPUS_CHECK(grid.size() == groups.rendezvous().world_size);
  mesh.at = grid.coordinates_of(mesh.rank);

  COPUS_TRY(mesh.world, groups.world());
  COPUS_TRY(mesh.tp, groups.group("tp", to_ints(grid.group_of(mesh.rank, Axis::kTp))));
  COPUS_TRY(mesh.dp, groups.group("dp", to_ints(grid.group_of(mesh.rank, Axis::kDp))));

  const std::int64_t share = std::max<std::int64_t>(1, plan.tp / model.kv_heads);
  std::vector<int> kv;
  for (std::int64_t i = 0; i < share; ++i) {
    kv.push_back(mesh.tp->members()[static_cast<std::size_t>(mesh.at.tp / share * share + i)]);
  }
  COPUS_TRY(mesh.kv, groups.group("kv heads", kv));

  COPUS_TRY_VOID(connect_stages(groups, grid, mesh));
  if (model.tied_embeddings && plan.pp > 1 && (mesh.first_stage() || mesh.last_stage())) {
    Coordinates first = mesh.at, last = mesh.at;
    first.pp = 0;
    last.pp = plan.pp - 1;
    COPUS_TRY(mesh.tied, groups.group("tied embedding", {static_cast<int>(grid.rank_of(first)),
                                                         static_cast<int>(grid.rank_of(last))}));
  }
  return mesh;
}

}  // namespace copus
