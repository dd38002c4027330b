// Where a rank keeps its weights and optimizer state in host memory: its own, or another's, whose
// addresses it knows.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "copus/train/engine/layout.h"
#include "copus/train/state/transfer.h"

namespace copus {

// Of all a layout's arrays, in the order that HostState reads them in.
std::vector<std::int64_t> state_addresses(const Layout& layout);

class HostState {
 public:
  // Of `rank` at `plan`, one of the change's two. Throws std::runtime_error where there are not as
  // many addresses as that plan has arrays.
  HostState(const LayoutChange& change, const ParallelPlan& plan, int rank,
            std::span<const std::int64_t> addresses);

  // Where the parts' elements lie, in an order that depends on the parts alone.
  std::vector<iovec> segments(const std::vector<StatePart>& parts) const;

 private:
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
