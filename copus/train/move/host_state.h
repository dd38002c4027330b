// Where a rank keeps its weights and optimizer state in host memory. Works for this rank and for
// any other rank whose addresses are known.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "copus/train/engine/layout.h"
#include "copus/train/state/transfer.h"

namespace copus {

// Returns the addresses of all arrays of a layout, in the order that HostState expects.
std::vector<std::int64_t> state_addresses(const Layout& layout);

class HostState {
 public:
  // The state of `rank` under `plan`, which is change.from or change.to. `addresses`: that rank's
  // state_addresses(). Throws std::runtime_error if their number is not that of the plan's arrays.
  HostState(const LayoutChange& change, const ParallelPlan& plan, int rank,
            std::span<const std::int64_t> addresses);

  // Returns the memory of the parts' elements. The order of the elements depends only on the parts,
  // so it is the same under both plans.
  std::vector<iovec> segments(const std::vector<StatePart>& parts) const;

 private:
  // Where a tensor lies in its bucket.
  struct Home {
    std::size_t bucket = 0;
    PlacedTensor tensor;
  };
  bool bf16_;
  std::vector<std::int64_t> addresses_;
  std::vector<std::int64_t> owned_begin_;  // by bucket
  std::vector<Home> homes_;                // by tensor of the model
};

}  // namespace copus
