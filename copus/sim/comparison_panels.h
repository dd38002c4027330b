// The parts of a comparison's picture: two panels with one time axis. Lengths are pixels.
#pragma once

#include <string>
#include <vector>

#include "copus/base/svg_page.h"
#include "copus/sim/comparison.h"

namespace copus {

constexpr double kPlotX = 70;
constexpr double kPlotWidth = 800;
constexpr double kPlotEnd = kPlotX + kPlotWidth;
constexpr double kLossY = 112;
constexpr double kLossHeight = 380;

// How one policy is drawn.
struct DrawnPolicy {
  const PolicyResult* result;
  std::string colour;  // a class of the page
  double width;
  bool dashed = false;
  bool main = false;  // the policy that the picture is about: "copus", or the first of its kind

  bool is_static() const { return result->policy.rule == Rule::kStatic; }
  const SimOutcome& run() const { return result->first; }
};

const DrawnPolicy* main_of(const std::vector<DrawnPolicy>& all);
// Returns the policies in drawing order: thin lines first, the main policy on top of them, dashed
// lines last, because they hide little.
std::vector<const DrawnPolicy*> in_drawing_order(const std::vector<DrawnPolicy>& all);
void draw_line(SvgPage& page, const DrawnPolicy& drawn, const std::string& path);

// The time axis of both panels. It is logarithmic, because the last loss takes a hundred times as
// long as the first.
struct TimeAxis {
  Seconds from{1}, to{10};

  TimeAxis(const std::vector<DrawnPolicy>& all, std::size_t losses);
  // Returns the position of `t`, which is on the edge if `t` is outside the axis.
  double x(Seconds t) const;
  void draw(SvgPage& page, double top, double height, bool named) const;
};

// Returns a time as text, for example "4.31 h".
std::string time_text(Seconds time);

void draw_loss_panel(SvgPage& page, const Comparison& comparison,
                     const std::vector<DrawnPolicy>& all, const TimeAxis& time);
// Returns the y at which the panel ends.
double draw_batch_panel(SvgPage& page, const std::vector<DrawnPolicy>& all, const TimeAxis& time,
                        double top);

}  // namespace copus
