#include "copus/validate/scatter_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "copus/base/svg_page.h"
#include "copus/base/text.h"

namespace copus {
namespace {

constexpr double kPageWidth = 960;
constexpr double kPlotX = 78;
constexpr double kPlotY = 84;
constexpr double kSide = 560;
constexpr double kLegendX = kPlotX + kSide + 28;
constexpr double kSpreadHeight = 190;
constexpr double kSpreadWidth = kPageWidth - kPlotX - 30;
constexpr double kBand = 0.10;

// A series, reduced to the points that can be drawn.
struct Drawn {
  std::string name;
  std::vector<ScatterPoint> points;
  std::vector<double> errors;  // signed, in ascending order
  std::size_t index = 0;

  // There are eight colours. The next eight sources have the same colours and another shape.
  std::size_t colour() const { return index % kSvgColours.size(); }
  double mean_error() const {
    const double sum = std::accumulate(errors.begin(), errors.end(), 0.0,
                                       [](double s, double e) { return s + std::abs(e); });
    return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
  }
};

std::vector<Drawn> drawn_of(const ScatterPicture& picture) {
  std::vector<Drawn> all;
  for (const ScatterSeries& series : picture.series) {
    Drawn drawn;
    drawn.name = series.name;
    for (const ScatterPoint& p : series.points) {
      const double ratio = p.predicted / p.measured;
      if (!(p.measured > Seconds() && p.predicted > Seconds() && std::isfinite(ratio) &&
            ratio > 0 && std::isfinite(p.predicted.v))) {
        continue;
      }
      drawn.points.push_back(p);
      drawn.errors.push_back(ratio - 1);
    }
    if (drawn.points.empty()) continue;
    std::sort(drawn.errors.begin(), drawn.errors.end());
    drawn.index = all.size();
    all.push_back(std::move(drawn));
  }
  return all;
}

// Returns the tick with number `step`. Ticks are at 1, 2 and 5 of each decade: tick 0 is 1 s, 1 is
// 2 s, 3 is 10 s, -1 is 0.5 s.
double tick(int step) {
  const int decade = step >= 0 ? step / 3 : -((2 - step) / 3);
  constexpr std::array<double, 3> kMantissa = {1, 2, 5};
  return kMantissa[static_cast<std::size_t>(step - 3 * decade)] * std::pow(10.0, decade);
}

std::string tick_name(double seconds) {
  if (seconds < 0.9e-3) return fmt::format("{:g} us", seconds * 1e6);
  if (seconds < 0.9) return fmt::format("{:g} ms", seconds * 1e3);
  return fmt::format("{:g} s", seconds);
}

// The range of both axes of the upper plot, from one tick to another. Both axes are equal, so
// points with equal times lie on the diagonal.
struct LogAxis {
  int first = -1, last = 1;

  explicit LogAxis(const std::vector<Drawn>& all) {
    double low = INFINITY, high = 0;
    for (const Drawn& drawn : all) {
      for (const ScatterPoint& p : drawn.points) {
        low = std::min({low, p.measured.v, p.predicted.v});
        high = std::max({high, p.measured.v, p.predicted.v});
      }
    }
    if (high == 0) return;
    first = static_cast<int>(std::floor(3 * std::log10(low))) + 1;
    while (tick(first) > low * 0.97) --first;
    last = first + 1;
    while (tick(last) < high * 1.03) ++last;
  }
  // Returns the share of the axis that lies before `seconds`.
  double at(double seconds) const {
    return std::log(seconds / tick(first)) / std::log(tick(last) / tick(first));
  }
  double x(double seconds) const { return kPlotX + kSide * at(seconds); }
  double y(double seconds) const { return kPlotY + kSide * (1 - at(seconds)); }
};

void draw_axes(SvgPage& page, const LogAxis& axis) {
  // A range of a few decades has room for every label. A longer range has labels only at decades,
  // or only at some decades.
  const int steps = axis.last - axis.first;
  const int labelled = steps <= 13 ? 1 : 3 * (1 + steps / 27);
  constexpr double kNameWidth = 46;  // pixels of the longest label; closer labels would touch
  double last_name = -kNameWidth;
  for (int step = axis.first; step <= axis.last; ++step) {
    const double seconds = tick(step);
    const double x = axis.x(seconds), y = axis.y(seconds);
    const bool is_decade = step % 3 == 0;
    page.add("<path d='M{:.1f} {}V{}M{} {:.1f}H{}' class='grid{}'/>\n", x, kPlotY, kPlotY + kSide,
             kPlotX, y, kPlotX + kSide, is_decade ? " decade" : "");
    if (step % labelled != 0) continue;
    if (x - last_name >= kNameWidth) {
      page.text(x, kPlotY + kSide + 17, tick_name(seconds), "text-anchor='middle' class='small'");
      last_name = x;
    }
    page.text(kPlotX - 7, y + 4, tick_name(seconds), "text-anchor='end' class='small'");
  }
  page.add("<rect x='{}' y='{}' width='{}' height='{}' class='plot'/>\n", kPlotX, kPlotY, kSide,
           kSide);
  page.text(kPlotX + kSide / 2, kPlotY + kSide + 38, "measured step time", "text-anchor='middle'");
  page.add(
      "<text transform='translate({} {}) rotate(-90)' text-anchor='middle'>predicted step "
      "time</text>\n",
      22, kPlotY + kSide / 2);
}

// Draws the diagonal and the band, cut off at the frame.
void draw_diagonal(SvgPage& page, const LogAxis& axis) {
  const double low = tick(axis.first), high = tick(axis.last);
  page.add(
      "<g clip-path='url(#frame)'><path d='M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} "
      "{:.1f}Z' class='band'/>",
      axis.x(low), axis.y(low * (1 - kBand)), axis.x(high), axis.y(high * (1 - kBand)),
      axis.x(high), axis.y(high * (1 + kBand)), axis.x(low), axis.y(low * (1 + kBand)));
  page.add("<path d='M{:.1f} {:.1f}L{:.1f} {:.1f}' class='line'/></g>\n", axis.x(low), axis.y(low),
           axis.x(high), axis.y(high));
}

void draw_mark(SvgPage& page, const Drawn& drawn, double x, double y, double size) {
  switch (drawn.index / kSvgColours.size() % 3) {
    case 0:
      page.add("<circle cx='{:.1f}' cy='{:.1f}' r='{}'/>", x, y, size);
      break;
    case 1:
      page.add("<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}'/>", x - size, y - size, 2 * size,
               2 * size);
      break;
    default:
      page.add("<path d='M{:.1f} {:.1f}l{} {}h-{}z'/>", x, y - size, size, 2 * size, 2 * size);
  }
}

void draw_points(SvgPage& page, const std::vector<Drawn>& all, const LogAxis& axis) {
  // Draw sources with few points last, on top of sources with many.
  std::vector<const Drawn*> order;
  order.reserve(all.size());
  for (const Drawn& drawn : all) order.push_back(&drawn);
  std::stable_sort(order.begin(), order.end(), [](const Drawn* a, const Drawn* b) {
    return a->points.size() > b->points.size();
  });
  for (const Drawn* drawn : order) {
    const bool is_dense = drawn->points.size() > 100;
    page.add(
        "<g class='c{}' fill='currentColor' stroke='currentColor' stroke-width='0.6' "
        "fill-opacity='{}' "
        "stroke-opacity='{}'>\n",
        drawn->colour(), is_dense ? 0.35 : 0.7, is_dense ? 0.8 : 1.0);
    for (const ScatterPoint& p : drawn->points) {
      draw_mark(page, *drawn, axis.x(p.measured.v), axis.y(p.predicted.v), is_dense ? 2.3 : 3.2);
    }
    page.add("</g>\n");
  }
}

void draw_legend(SvgPage& page, const std::vector<Drawn>& all) {
  double y = kPlotY + 14;
  for (const Drawn& drawn : all) {
    page.add("<g class='c{}' fill='currentColor'>", drawn.colour());
    draw_mark(page, drawn, kLegendX + 5, y - 4, 4.5);
    page.add("</g>\n");
    page.text(kLegendX + 18, y, shortened(drawn.name, 36));
    page.text(
        kLegendX + 18, y + 16,
        fmt::format("n = {}, mean error {:.1f}%", drawn.points.size(), 100 * drawn.mean_error()),
        "class='small'");
    y += 40;
    if (y > kPlotY + kSide - 70 && &drawn != &all.back()) {
      const std::size_t rest = all.size() - 1 - drawn.index;
      page.text(kLegendX + 18, y, fmt::format("and {} more", rest), "class='small'");
      y += 24;
      break;
    }
  }
  page.add("<path d='M{} {}h22' class='line'/>\n", kLegendX, y - 4);
  page.text(kLegendX + 30, y, "predicted = measured", "class='small'");
  page.add("<rect x='{}' y='{}' width='22' height='12' class='band'/>\n", kLegendX, y + 8);
  page.text(kLegendX + 30, y + 18, "within 10%", "class='small'");
}

// Returns the percent between two ticks of an error axis from -limit to limit.
double spread_step(double limit) { return limit > 50 ? 20 : 10; }

// Returns that limit, a whole number of tick steps. Nine of ten rows of every source lie inside it,
// unless that needs more than 100 percent.
double spread_limit(const std::vector<Drawn>& all) {
  double limit = 20;
  for (const Drawn& drawn : all) {
    const std::size_t n = drawn.errors.size();
    limit = std::max({limit, -100 * drawn.errors[n / 20], 100 * drawn.errors[n - 1 - n / 20]});
  }
  const double step = spread_step(limit);
  return std::min(100.0, std::ceil(limit / step) * step);
}

// Draws for each source the share of its rows whose error is below a value. Perfect predictions
// would give a single step at 0.
void draw_spread(SvgPage& page, const std::vector<Drawn>& all, double top) {
  page.text(kPlotX, top - 12, "Share of rows whose signed error is below", "class='head'");
  const double limit = spread_limit(all);
  const auto x = [&](double percent) {
    return kPlotX + kSpreadWidth * (std::clamp(percent / limit, -1.0, 1.0) + 1) / 2;
  };
  const auto y = [&](double share) { return top + kSpreadHeight * (1 - share); };
  page.add("<rect x='{:.1f}' y='{}' width='{:.1f}' height='{}' class='band'/>\n", x(-100 * kBand),
           top, x(100 * kBand) - x(-100 * kBand), kSpreadHeight);
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double share = quarter / 4.0;
    page.add("<path d='M{} {:.1f}h{}' class='grid'/>\n", kPlotX, y(share), kSpreadWidth);
    page.text(kPlotX - 7, y(share) + 4, fmt::format("{:.0f}%", 100 * share),
              "text-anchor='end' class='small'");
  }
  const int step = static_cast<int>(spread_step(limit)), most = static_cast<int>(limit);
  for (int percent = -most; percent <= most; percent += step) {
    page.add("<path d='M{:.1f} {}v{}' class='{}'/>\n", x(percent), top, kSpreadHeight,
             percent == 0 ? "line" : "grid");
    page.text(x(percent), top + kSpreadHeight + 17,
              percent == 0 ? "0" : fmt::format("{:+d}%", percent),
              "text-anchor='middle' class='small'");
  }
  page.text(kPlotX, top + kSpreadHeight + 37, "predicted too fast", "class='small'");
  page.text(kPlotX + kSpreadWidth / 2, top + kSpreadHeight + 37, "predicted / measured - 1",
            "text-anchor='middle'");
  page.text(kPlotX + kSpreadWidth, top + kSpreadHeight + 37, "predicted too slow",
            "text-anchor='end' class='small'");
  page.add("<rect x='{}' y='{}' width='{}' height='{}' class='plot'/>\n", kPlotX, top, kSpreadWidth,
           kSpreadHeight);
  for (const Drawn& drawn : all) {
    std::string path = fmt::format("M{} {:.1f}", kPlotX, y(0));
    const double n = static_cast<double>(drawn.errors.size());
    for (std::size_t i = 0; i < drawn.errors.size(); ++i) {
      fmt::format_to(std::back_inserter(path), "H{:.1f}V{:.1f}", x(100 * drawn.errors[i]),
                     y(static_cast<double>(i + 1) / n));
    }
    page.add("<path d='{}H{}' class='c{}' fill='none' stroke='currentColor' stroke-width='1.8'/>\n",
             path, kPlotX + kSpreadWidth, drawn.colour());
  }
}

}  // namespace

std::string scatter_svg(const ScatterPicture& picture) {
  const std::vector<Drawn> all = drawn_of(picture);
  const LogAxis axis(all);
  SvgPage body;
  body.style(
      ".plot{fill:none;stroke:#334155}.grid{fill:none;stroke:#e8edf3}.decade{stroke:#c3cddb}"
      ".band{fill:#64748b;fill-opacity:.24}.line{fill:none;stroke:#334155}",
      ".plot,.line{stroke:#94a3b8}.grid{stroke:#1e293b}.decade{stroke:#334155}"
      ".band{fill:#94a3b8}");
  for (std::size_t i = 0; i < kSvgColours.size(); ++i) {
    body.style_colour(fmt::format("c{}", i), kSvgColours[i]);
  }
  body.add("<clipPath id='frame'><rect x='{0}' y='{1}' width='{2}' height='{2}'/></clipPath>\n",
           kPlotX, kPlotY, kSide);
  body.text(30, 34, shortened(picture.title, 90), "class='title'");
  body.text(30, 57, shortened(picture.subtitle, 140));
  draw_axes(body, axis);
  draw_diagonal(body, axis);
  draw_points(body, all, axis);
  draw_legend(body, all);
  const double spread_top = kPlotY + kSide + 84;
  draw_spread(body, all, spread_top);

  const double height = spread_top + kSpreadHeight + 54;
  return body.document(kPageWidth, height);
}

}  // namespace copus
