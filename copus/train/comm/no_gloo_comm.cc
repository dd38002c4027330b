// Replaces gloo_comm.cc if this libtorch comes without Gloo headers.
#include "copus/train/comm/comm.h"

namespace copus {

Result<std::unique_ptr<CommBackend>> make_gloo_backend(const GroupAddress&) {
  return field_error(
      "device", "got cpu with several ranks; want one rank, or a build with Gloo (libgloo-dev)");
}

}  // namespace copus
