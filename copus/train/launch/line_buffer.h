// LineBuffer: takes bytes and returns whole lines. To bound the memory, it returns a line longer
// than kMaxLine in pieces of that size.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace copus {

class LineBuffer {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} * 1024;
  using Sink = std::function<void(std::string_view line)>;  // without the newline

  void feed(std::string_view bytes, const Sink& sink);
  // Passes on the bytes after the last newline, if there are any, as a line. Called at the end of
  // the input.
  void flush(const Sink& sink);

 private:
  std::string rest_;
};

}  // namespace copus
