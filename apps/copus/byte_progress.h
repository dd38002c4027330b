// Progress as "312 MiB of 1.20 GiB" on one line of the terminal, a few times per second. Prints
// nothing if standard error is not a terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "copus/base/text.h"
#include "copus/base/to_stderr.h"

namespace copus {

class ByteProgress {
 public:
  // `total` in bytes; 0 if it is not known.
  explicit ByteProgress(double total) : shown_(::isatty(STDERR_FILENO) == 1), total_(total) {}

  void operator()(std::int64_t bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    const std::string of = total_ > 0 ? " of " + human_bytes(total_) : std::string();
    to_stderr(fmt::format("\r{}{}   ", human_bytes(static_cast<double>(bytes)), of));
    begun_ = true;
  }
  void clear() const {
    if (begun_) to_stderr(fmt::format("\r{:40}\r", ""));
  }

 private:
  bool shown_;
  bool begun_ = false;
  double total_ = 0;
  // The first output comes after 200 ms, so that a short run prints none.
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace copus
