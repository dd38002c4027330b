// Recorder: what rank 0 writes down of a run.
#pragma once

#include <chrono>
#include <cmath>
#include <optional>

#include "copus/train/record/run_directory.h"

namespace copus {

class Recorder {
 public:
  explicit Recorder(RunDirectory directory) : directory_(std::move(directory)) {}

  Result<void> write(const char* event, const Json& fields) {
    const auto t = std::chrono::steady_clock::now() - begin_;
    Json line = {{"event", event}, {"t", std::chrono::duration<double>(t).count()}};
    line.update(fields);
    return directory_.append_event(line);
  }

  const RunDirectory& directory() const { return directory_; }

 private:
  RunDirectory directory_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// A number, or null where there is none or it is no number of JSON's (infinite, NaN).
inline Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

}  // namespace copus
