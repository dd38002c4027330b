// Predicted against measured step times as one picture: a point per run on logarithmic axes with
// the diagonal and a band of 10% around it, and below, how the signed errors of each source are
// spread. A self-contained SVG, without scripts or fonts, for light and dark pages.
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
