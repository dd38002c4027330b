// Draws the traffic as one picture: the matrix as a heat map, the share of each dimension, the
// busiest links, and the on-off pattern of one GPU over time. The SVG is self-contained, without
// scripts or fonts.
#pragma once

#include <string>

#include "copus/tuner/traffic.h"
#include "copus/tuner/traffic_pattern.h"

namespace copus {

// If there are more GPUs than this per side, cells are nodes, or several nodes.
constexpr std::int64_t kMaxCells = 512;

struct TrafficPicture {
  std::string title;
  std::string subtitle;
  const Traffic& traffic;
  const LinkLoads& links;
  const TrafficPattern& pattern;
};
std::string traffic_svg(const TrafficPicture& picture);

// Returns only the strip of the on-off pattern, at (x, y), `width` pixels wide. Sets `height`.
std::string pattern_strip(const TrafficPattern& pattern, double x, double y, double width,
                          double& height);

// Returns the colour of a dimension as #rrggbb.
const char* dimension_colour(Dimension dimension);

}  // namespace copus
