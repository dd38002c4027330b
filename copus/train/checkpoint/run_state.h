// What a run's first rank keeps in the manifest beside weights and optimizer state: where its data,
// its learning rate and its controller were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "copus/base/json.h"
#include "copus/base/result.h"

namespace copus {

struct SavedSchedule {
  double peak = 0;
  double floor = 0;
  std::int64_t warmup_samples = 0;
  std::int64_t decay_samples = 0;
  friend bool operator==(const SavedSchedule&, const SavedSchedule&) = default;
};

struct RunState {
  std::uint64_t data_hash = 0;  // of all samples so far
  std::optional<std::uint64_t>
      fingerprint;                         // of the data; nothing: imported weights have seen none
  std::optional<std::int64_t> tokens;      // consumed
  std::optional<std::int64_t> base_batch;  // that the learning rate is meant for
  std::optional<SavedSchedule> lr;
  std::optional<double> loss;  // of the last step
  std::string version;         // of the program
  Json controller;             // null: none
  friend bool operator==(const RunState&, const RunState&) = default;
};

Json run_state_to_json(const RunState& state);
// Keys that other versions wrote, or an import, are left alone. `where` names the manifest.
Result<RunState> run_state_from_json(const Json& json, const std::string& where);

}  // namespace copus
