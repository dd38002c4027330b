// Mesh: this rank's place in a plan, and the groups that it belongs to.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "copus/spec/parallel_plan.h"
#include "copus/spec/rank_grid.h"
#include "copus/train/comm/comm.h"

namespace copus {

// All groups of this rank. A group is made once and kept: after a change of layout, a plan that
// needs the same ranks under the same name gets the same group.
class GroupCache {
 public:
  explicit GroupCache(Rendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}

  const Rendezvous& rendezvous() const { return rendezvous_; }
  // Returns the group, and makes it if there is none yet: this blocks until the other members have
  // asked for it too. REQUIRES: this rank is a member.
  Result<const Comm*> group(const std::string& name, const std::vector<int>& members);
  // Returns the group of all ranks.
  Result<const Comm*> world();

  std::size_t count() const { return made_.size(); }
  // Deletes all groups but the first `count`. Called on every rank after an attempt to make groups
  // has failed on some rank, because a member may not have made them. REQUIRES: the deleted groups
  // are not in use.
  void forget_since(std::size_t count);

  // Shuts down all groups, newest first. Every rank calls this at the end of a run without errors.
  void shut_down();

 private:
  using Key = std::pair<std::string, std::vector<int>>;
  Rendezvous rendezvous_;
  std::map<Key, std::unique_ptr<Comm>> groups_;
  std::vector<Key> made_;  // the groups in the order in which they were made
  int attempt_ = 0;        // number of failed attempts so far
};

struct Mesh {
  ParallelPlan plan;
  int rank = 0;
  Coordinates at;

  const Comm* world = nullptr;
  const Comm* tp = nullptr;
  const Comm* dp = nullptr;
  const Comm* kv = nullptr;  // the tp ranks that hold the same key and value heads
  // The first and the last stage, if they share the embedding; null on other stages and models.
  const Comm* tied = nullptr;
  // One group for each direction and neighbour, so that no message waits behind one that goes the
  // other way.
  const Comm* next_forward = nullptr;       // to the next stage (wraps around with virtual stages)
  const Comm* previous_forward = nullptr;   // from the previous stage
  const Comm* next_backward = nullptr;      // gradients from the next stage
  const Comm* previous_backward = nullptr;  // gradients to the previous stage

  // Every rank of the world must call this with the same plan. REQUIRES: the plan is valid.
  static Result<Mesh> create(GroupCache& groups, const ParallelPlan& plan, const ModelSpec& model);

  bool first_stage() const { return at.pp == 0; }
  bool last_stage() const { return at.pp == plan.pp - 1; }
};

}  // namespace copus
