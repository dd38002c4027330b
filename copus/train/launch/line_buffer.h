// LineBuffer: bytes in, whole lines out. Memory is bounded: a line longer than kMaxLine comes in
// pieces of that size.
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
  // What was written after the last newline, if anything: a line too, once nothing follows.
  void flush(const Sink& sink);

 private:
  std::string rest_;
};

}  // namespace copus
