// The loss panel: loss over time, and where the main policy and the fastest baseline reach each
// loss.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "copus/sim/comparison_panels.h"

namespace copus {
namespace {

constexpr double kBelowLast = 24;  // room for a speedup below the last loss
constexpr double kTextHeight = 15;

struct LossAxis {
  double high = 1, low = 0;

  LossAxis(const std::vector<DrawnPolicy>& all, const std::vector<double>& losses,
           const TimeAxis& time) {
    if (losses.empty()) return;
    high = losses.front();
    for (const DrawnPolicy& drawn : all) {
      if (drawn.is_static()) continue;  // a curve of a large batch may begin above the plot
      const std::vector<SimPoint>& points = drawn.run().points;
      const auto at_edge = std::find_if(points.begin(), points.end(),
                                        [&](const SimPoint& p) { return p.t >= time.from; });
      if (at_edge != points.end()) high = std::max(high, at_edge->loss);
    }
    constexpr double kMostAbove = 1.6;
    high = std::min(high, kMostAbove * losses.front());
    const double fall = std::max(high - losses.back(), 1e-3 * losses.back());
    high = losses.back() + 1.04 * fall;
    low = losses.back() - fall * kBelowLast / (kLossHeight - kBelowLast);
  }
  double y(double loss) const { return kLossY + kLossHeight * (high - loss) / (high - low); }

  // Returns the distance of the grid's lines: 0.1, 0.2, 0.5, 1, …, and at least 40 pixels.
  double step() const {
    const double least = (high - low) * 40 / kLossHeight;
    const double decade = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * decade >= least) return factor * decade;
    }
    return 10 * decade;
  }
  void draw(SvgPage& page) const {
    const auto first = static_cast<std::int64_t>(std::ceil(low / step()));
    const auto last = static_cast<std::int64_t>(std::floor(high / step()));
    for (std::int64_t i = first; i <= last; ++i) {
      const double loss = static_cast<double>(i) * step();
      page.add("<path d='M{} {:.1f}h{}' class='grid'/>\n", kPlotX, y(loss), kPlotWidth);
      page.text(kPlotX - 7, y(loss) + 4, fmt::format("{:.4g}", loss),
                "text-anchor='end' class='small'");
    }
  }
};

std::string path_of(const SimOutcome& run, const TimeAxis& time, const LossAxis& axis) {
  std::string path;
  for (const SimPoint& point : run.points) {
    // The path begins on the axis's edge, with the last point before the axis.
    if (point.t <= time.from) path.clear();
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', time.x(point.t),
                        axis.y(point.loss));
    if (point.t > time.to) break;
  }
  return path;
}

// Returns when the run of the first seed reached a loss.
std::optional<Seconds> crossing(const DrawnPolicy& drawn, std::size_t loss) {
  const std::vector<SimPoint>& all = drawn.run().crossings;
  if (loss >= all.size()) return std::nullopt;
  return all[loss].t;
}

// Draws a dot on the main policy and one on the fastest baseline at each loss. Writes the speedup
// below the loss and left of all curves, where the plot is empty.
void draw_speedups(SvgPage& page, const Comparison& comparison, const std::vector<DrawnPolicy>& all,
                   const TimeAxis& time, const LossAxis& axis) {
  const DrawnPolicy* main = main_of(all);
  double last_text = 0;
  for (std::size_t l = 0; l < comparison.losses.size(); ++l) {
    const double y = axis.y(comparison.losses[l]);
    page.add("<path d='M{} {:.1f}h{}' class='loss'/>\n", kPlotX, y, kPlotWidth);
    const auto base = std::find_if(
        comparison.fastest.begin(), comparison.fastest.end(),
        [&](const FastestBaseline& fastest) { return fastest.loss == comparison.losses[l]; });
    if (main == nullptr || base == comparison.fastest.end()) continue;
    double front = kPlotEnd;
    for (const DrawnPolicy* drawn : in_drawing_order(all)) {
      const std::optional<Seconds> t = crossing(*drawn, l);
      if (!t) continue;
      front = std::min(front, time.x(*t));
      if (!drawn->main && drawn->result->policy.name != base->name) continue;
      page.add("<circle cx='{:.1f}' cy='{:.1f}' r='4' class='{} dot' fill='currentColor'/>\n",
               time.x(*t), y, drawn->colour);
    }
    const double percent = main->result->speedup.by_loss[l];
    if (!std::isfinite(percent) || y - last_text < kTextHeight) continue;
    page.text(front - 6, y + 14, fmt::format("{:+.1f}%", percent),
              "text-anchor='end' class='speedup'");
    last_text = y;
  }
}

}  // namespace

void draw_loss_panel(SvgPage& page, const Comparison& comparison,
                     const std::vector<DrawnPolicy>& all, const TimeAxis& time) {
  const LossAxis axis(all, comparison.losses, time);
  page.text(kPlotX, kLossY - 12, "Loss over time", "class='head'");
  time.draw(page, kLossY, kLossHeight, false);
  axis.draw(page);
  page.add("<clipPath id='losses'><rect x='{}' y='{}' width='{}' height='{}'/></clipPath>\n",
           kPlotX, kLossY, kPlotWidth, kLossHeight);
  page.add("<g clip-path='url(#losses)'>\n");
  for (const DrawnPolicy* drawn : in_drawing_order(all)) {
    if (!drawn->run().points.empty()) draw_line(page, *drawn, path_of(drawn->run(), time, axis));
  }
  page.add("</g>\n<rect x='{}' y='{}' width='{}' height='{}' class='plot'/>\n", kPlotX, kLossY,
           kPlotWidth, kLossHeight);
  draw_speedups(page, comparison, all, time, axis);
}

}  // namespace copus
