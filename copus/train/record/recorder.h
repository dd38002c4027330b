// Recorder: what rank 0 writes down of a run.
#pragma once

#include <chrono>

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

}  // namespace copus
