#include "copus/train/launch/line_buffer.h"

#include <gtest/gtest.h>

#include <vector>

namespace copus {
namespace {

using Lines = std::vector<std::string>;

// Returns the lines of `text` if `step` bytes of it arrive at a time.
Lines lines_of(std::string_view text, std::size_t step) {
  Lines lines;
  const LineBuffer::Sink sink = [&](std::string_view line) { lines.emplace_back(line); };
  LineBuffer buffer;
  for (; !text.empty(); text.remove_prefix(std::min(step, text.size()))) {
    buffer.feed(text.substr(0, step), sink);
  }
  buffer.flush(sink);
  return lines;
}

TEST(LineBuffer, LinesAreWholeHoweverTheyArrive) {
  for (const std::size_t step : {1u, 2u, 3u, 5u, 100u}) {
    EXPECT_EQ(lines_of("one\ntwo\n\nthree\n", step), Lines({"one", "two", "", "three"}));
    EXPECT_EQ(lines_of("one\nunfinished", step), Lines({"one", "unfinished"}));
  }
  EXPECT_EQ(lines_of("", 1), Lines());
}

TEST(LineBuffer, LongLinesComeInPieces) {
  constexpr std::size_t kMax = LineBuffer::kMaxLine;
  for (const std::size_t step : {std::size_t{1000}, kMax, 10 * kMax}) {
    EXPECT_EQ(lines_of(std::string(kMax, 'x') + "\n", step), Lines({std::string(kMax, 'x')}));
    EXPECT_EQ(lines_of(std::string(kMax + 1, 'x') + "\ny", step),
              Lines({std::string(kMax, 'x'), "x", "y"}));
    EXPECT_EQ(lines_of(std::string(3 * kMax, 'x'), step), Lines(3, std::string(kMax, 'x')));
  }
}

}  // namespace
}  // namespace copus
