// What a checkpoint is: the manifest beside its shards. With it a reader knows the model, where the
// run was, and what each file must be; it needs no knowledge of the layout that wrote them.
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

// What bounds a number of a checkpoint that nothing else bounds.
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

struct CheckpointFile {
  std::string name;  // in the checkpoint's folder
  std::int64_t bytes = 0;
  std::uint64_t xxh3 = 0;  // of all of them
};

struct Manifest {
  int format = 1;
  ModelSpec model;
  ParallelPlan plan;  // where the run that wrote it goes on, and its global_batch
  std::int64_t step = 0;
  std::int64_t samples = 0;  // consumed
  std::int64_t updates = 0;  // of Adam
  std::int64_t global_batch = 1;
  std::int64_t seq_len = 1;
  std::uint64_t seed = 1;  // at most 2^63 - 1
  bool optimizer = true;   // false: weights alone; a run that goes on from it has moments of 0
  std::vector<CheckpointFile> files;
  // What the run's first rank keeps beside: hash and fingerprint of the data, the noise scale's and
  // the controller's state, the learning-rate schedule.
  Json run = Json::object();
};

constexpr const char* kManifestName = "manifest.json";

// The text of manifest.json. It carries its own checksum, and there is one text for a manifest.
std::string print_manifest(const Manifest& manifest);
// Only a text as print_manifest() writes it is taken: any byte that has changed is an error.
Result<Manifest> parse_manifest(const std::string& text, const std::string& where);
// Of a checkpoint's folder.
Result<Manifest> read_manifest(const std::string& folder);

}  // namespace copus
