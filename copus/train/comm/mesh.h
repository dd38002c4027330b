// Mesh: this rank's place in a plan, and its groups.
//
// A group is made once and kept: a plan that needs the same ranks under the same name again (after
// a change of layout) gets the same one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "copus/spec/parallel_plan.h"
#include "copus/spec/rank_grid.h"
#include "copus/train/comm/comm.h"

namespace copus {

class GroupCache {
 public:
  explicit GroupCache(Rendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}

  const Rendezvous& rendezvous() const { return rendezvous_; }
  // REQUIRES: this rank is a member. Blocks until the others have asked for it too.
  Result<const Comm*> group(const std::string& name, const std::vector<int>& members);
  // The group of all ranks.
  Result<const Comm*> world();

  // After an attempt to make groups that failed on some rank: those made since there were `count`
  // are gone, for a member may not have got there. On all ranks alike. REQUIRES: none is used.
  std::size_t count() const { return made_.size(); }
  void forget_since(std::size_t count);

  // Ends all groups, the newest first. At the end of a run that went well, on all ranks alike.
  void shut_down();

 private:
  using Key = std::pair<std::string, std::vector<int>>;
  Rendezvous rendezvous_;
  std::map<Key, std::unique_ptr<Comm>> groups_;
  std::vector<Key> made_;  // in this order
  int attempt_ = 0;        // one more with each that failed
};

struct Mesh {
  ParallelPlan plan;
  int rank = 0;
  Coordinates at;

  const Comm* world = nullptr;
  const Comm* tp = nullptr;
  const Comm* dp = nullptr;
  const Comm* kv = nullptr;    // the tp ranks that hold the same key and value heads
  const Comm* tied = nullptr;  // first and last stage, where they share the embedding; or null
  // One per direction and neighbour, so that no message waits behind one that goes the other way.
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
