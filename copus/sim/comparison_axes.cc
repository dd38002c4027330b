// The time axis and the lines that both panels of a comparison's picture share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "copus/base/text.h"
#include "copus/sim/comparison_panels.h"

namespace copus {
namespace {

// Returns the times from `from` to `to` that are round in ms, s, min or h.
std::vector<Seconds> ticks_between(Seconds from, Seconds to) {
  constexpr std::array<double, 6> kOfSixty = {1, 2, 5, 10, 20, 30};
  std::vector<Seconds> ticks;
  const auto add = [&](double seconds) {
    const Seconds tick(seconds);
    if (tick >= from && tick <= to) ticks.push_back(tick);
  };
  for (int decade = -9; decade < 0; ++decade) {
    for (const double tick : {1, 2, 5}) add(tick * std::pow(10, decade));
  }
  for (const double tick : kOfSixty) add(tick);
  for (const double tick : kOfSixty) add(60 * tick);
  for (double decade = 1; 3600 * decade <= to.v; decade *= 10) {
    for (const double tick : {1, 2, 5}) add(3600 * tick * decade);
  }
  return ticks;
}

std::string tick_name(Seconds tick) {
  const double seconds = tick.v;
  if (seconds < 0.9) return fmt::format("{:g} ms", seconds * 1e3);
  if (seconds < 59) return fmt::format("{:g} s", seconds);
  if (seconds < 3599) return fmt::format("{:g} min", seconds / 60);
  return fmt::format("{:g} h", seconds / 3600);
}

}  // namespace

const DrawnPolicy* main_of(const std::vector<DrawnPolicy>& all) {
  const auto found =
      std::find_if(all.begin(), all.end(), [](const DrawnPolicy& drawn) { return drawn.main; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<const DrawnPolicy*> in_drawing_order(const std::vector<DrawnPolicy>& all) {
  std::vector<const DrawnPolicy*> order;
  order.reserve(all.size());
  for (const DrawnPolicy& drawn : all) order.push_back(&drawn);
  std::stable_sort(order.begin(), order.end(), [](const DrawnPolicy* a, const DrawnPolicy* b) {
    return std::pair(a->dashed, a->width) < std::pair(b->dashed, b->width);
  });
  return order;
}

void draw_line(SvgPage& page, const DrawnPolicy& drawn, const std::string& path) {
  page.add(
      "<path d='{}' class='{}' fill='none' stroke='currentColor' stroke-width='{}' "
      "stroke-linejoin='round'{}/>\n",
      path, drawn.colour, drawn.width, drawn.dashed ? " stroke-dasharray='6 4'" : "");
}

TimeAxis::TimeAxis(const std::vector<DrawnPolicy>& all, std::size_t losses) {
  Seconds first(INFINITY), fastest(INFINITY), slowest;
  for (const DrawnPolicy& drawn : all) {
    const SimOutcome& run = drawn.run();
    if (!run.crossings.empty() && run.crossings.front().t > Seconds()) {
      first = min(first, run.crossings.front().t);
    }
    if (run.points.empty() || !(run.points.back().t > Seconds())) continue;
    const Seconds end = run.points.back().t;
    if (run.crossings.size() == losses) fastest = min(fastest, end);
    slowest = max(slowest, end);
  }
  if (slowest <= Seconds()) return;
  // The axis leaves out most of the time before the first crossing, where all losses fall steeply,
  // and ends at four times the fastest run's time, because slower runs matter little.
  constexpr double kBefore = 6, kAfter = 4;
  to = 1.05 * min(slowest, kAfter * fastest);
  from = min(first, to) / kBefore;
}

double TimeAxis::x(Seconds t) const {
  const double share = std::log(max(t, from) / from) / std::log(to / from);
  return kPlotX + kPlotWidth * std::min(share, 1.0);
}

void TimeAxis::draw(SvgPage& page, double top, double height, bool named) const {
  constexpr double kNameWidth = 44;  // of the longest name: closer names would touch
  double last_name = -kNameWidth;
  for (const Seconds tick : ticks_between(from, to)) {
    page.add("<path d='M{:.1f} {}v{}' class='grid'/>\n", x(tick), top, height);
    if (!named || x(tick) - last_name < kNameWidth) continue;
    page.text(x(tick), top + height + 17, tick_name(tick), "text-anchor='middle' class='small'");
    last_name = x(tick);
  }
}

std::string time_text(Seconds time) {
  const double seconds = time.v;
  if (!std::isfinite(seconds)) return "not reached";
  if (seconds < 60) return human_seconds(time);
  return seconds < 3600 ? fmt::format("{:.1f} min", seconds / 60)
                        : fmt::format("{:.2f} h", seconds / 3600);
}

}  // namespace copus
