// Stands in for gloo_comm.cc where this libtorch ships no Gloo headers.
#include "copus/train/comm/comm.h"

namespace copus {

Result<std::unique_ptr<CommBackend>> make_gloo_backend(const GroupAddress&) {
  return field_error(
      "device", "got cpu with several ranks; want one rank, or a build with Gloo (libgloo-dev)");
}

}  // namespace copus
