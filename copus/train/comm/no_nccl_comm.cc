// Replaces nccl_comm.cc if libtorch was built without NCCL.
#include "copus/train/comm/comm.h"

namespace copus {

Result<std::unique_ptr<CommBackend>> make_nccl_backend(const GroupAddress&) {
  return field_error("device", "got cuda with several ranks; want a libtorch that has NCCL");
}

}  // namespace copus
