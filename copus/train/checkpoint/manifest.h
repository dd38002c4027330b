// The manifest of a checkpoint, which lies beside its shards. It tells a reader the model, the
// position of the run, and the size and checksum of each file. A reader does not need to know the
// layout that wrote the shards.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// The limit for numbers of a checkpoint that have no other limit.
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

struct CheckpointFile {
  std::string name;  // in the checkpoint's folder
  std::int64_t bytes = 0;
  std::uint64_t xxh3 = 0;  // checksum of all bytes
};

struct Manifest {
  int format = 1;
  ModelSpec model;
  ParallelPlan plan;  // with which the run continues, at global_batch
  std::int64_t step = 0;
  std::int64_t samples = 0;  // consumed
  std::int64_t updates = 0;  // of Adam
  std::int64_t global_batch = 1;
  std::int64_t seq_len = 1;
  std::uint64_t seed = 1;  // at most 2^63 - 1
  bool optimizer = true;   // false: only weights; a run that resumes from it has moments of 0
  std::vector<CheckpointFile> files;
  // What rank 0 adds (run_state.h): hash and fingerprint of the data, the state of the noise scale
  // and of the controller, the learning-rate schedule.
  Json run = Json::object();
};

constexpr const char* kManifestName = "manifest.json";

// The text of manifest.json. It has its own checksum. Equal manifests have equal texts.
std::string print_manifest(const Manifest& manifest);
// Accepts only a text that print_manifest() wrote: any changed byte is an error.
Result<Manifest> parse_manifest(const std::string& text, const std::string& where);
// Reads the manifest of the checkpoint in `folder`.
Result<Manifest> read_manifest(const std::string& folder);

}  // namespace copus
