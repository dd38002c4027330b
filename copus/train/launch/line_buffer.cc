#include "copus/train/launch/line_buffer.h"

#include <algorithm>

namespace copus {

void LineBuffer::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t room = kMaxLine - rest_.size();
    const std::size_t newline = bytes.substr(0, room + 1).find('\n');
    if (newline != std::string_view::npos) {
      rest_ += bytes.substr(0, newline);
      sink(rest_);
      rest_.clear();
      bytes.remove_prefix(newline + 1);
      continue;
    }
    // A full buffer waits for one more byte: if that is a newline, the line ends there, and no
    // empty line follows.
    if (room == 0) {
      sink(rest_);
      rest_.clear();
      continue;
    }
    const std::size_t taken = std::min(room, bytes.size());
    rest_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
  }
}

void LineBuffer::flush(const Sink& sink) {
  if (!rest_.empty()) sink(rest_);
  rest_.clear();
}

}  // namespace copus
