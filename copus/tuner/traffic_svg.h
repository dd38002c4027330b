// The traffic as one picture: the matrix as a heat map, the share of each dimension, the busiest
// links, and the on-off pattern of one GPU in time. A self-contained SVG, without scripts or fonts.
#pragma once

#include <string>

#include "copus/tuner/traffic.h"
#include "copus/tuner/traffic_pattern.h"

namespace copus {

// More cells than this a side are drawn by node, or by several nodes.
constexpr std::int64_t kMaxCells = 512;

struct TrafficPicture {
  std::string title;
  std::string subtitle;
  const Traffic& traffic;
  const LinkLoads& links;
  const TrafficPattern& pattern;
};
std::string traffic_svg(const TrafficPicture& picture);

// The strip of the on-off pattern alone, at (x, y) and `width` pixels wide. `height` becomes its
// height.
std::string pattern_strip(const TrafficPattern& pattern, double x, double y, double width,
                          double& height);

// Shared by both.
const char* dimension_colour(Dimension dimension);

}  // namespace copus
