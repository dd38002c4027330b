// Draws predicted against measured step times. The upper plot has a point for each run on
// logarithmic axes, with the diagonal and a band of 10% around it. The lower plot shows the
// distribution of the signed errors of each source. The SVG is self-contained, without scripts or
// fonts, and suits light and dark pages.
#pragma once

#include <string>
#include <vector>

#include "copus/base/units.h"

namespace copus {

struct ScatterPoint {
  Seconds measured;
  Seconds predicted;
};

struct ScatterSeries {
  std::string name;
  std::vector<ScatterPoint> points;
};

struct ScatterPicture {
  std::string title;
  std::string subtitle;
  std::vector<ScatterSeries> series;
};

// Points that are not positive and finite are left out.
std::string scatter_svg(const ScatterPicture& picture);

}  // namespace copus
