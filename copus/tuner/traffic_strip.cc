// Draws the on-off pattern as lanes over time: the whole step, and an enlarged part with two passes
// in its middle.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "copus/base/text.h"
#include "copus/tuner/traffic_svg.h"

namespace copus {
namespace {

constexpr double kLabelWidth = 78;
constexpr double kLane = 16;
constexpr double kLaneGap = 5;
constexpr double kAxis = 24;

struct Window {
  Seconds from, to;
  double x, width;  // pixels

  Seconds length() const { return to - from; }
  double at(Seconds t) const { return x + width * ((t - from) / length()); }
};

// The share of time during which each pixel is on. A burst is often far narrower than a pixel, so
// the strength of the colour shows this share.
class Coverage {
 public:
  explicit Coverage(const Window& window)
      : window_(window), on_(static_cast<std::size_t>(std::max(1.0, window.width))) {}

  void add(Seconds from, Seconds to) {
    from = max(from, window_.from);
    to = min(to, window_.to);
    if (to <= from) return;
    const double n = static_cast<double>(on_.size());
    const double a = (from - window_.from) / window_.length() * n;
    const double b = (to - window_.from) / window_.length() * n;
    const auto end = std::min(static_cast<std::size_t>(std::ceil(b)), on_.size());
    for (auto i = static_cast<std::size_t>(a); i < end; ++i) {
      const auto pixel = static_cast<double>(i);
      on_[i] += std::min(b, pixel + 1) - std::max(a, pixel);
    }
  }

  void draw(std::string& svg, double y, const char* colour) const {
    constexpr int kLevels = 10;
    auto level = [&](std::size_t i) {
      return on_[i] <= 0 ? 0
                         : std::clamp(static_cast<int>(std::lround(on_[i] * kLevels)), 1, kLevels);
    };
    for (std::size_t i = 0; i < on_.size();) {
      std::size_t end = i + 1;
      while (end < on_.size() && level(end) == level(i)) ++end;
      if (level(i) > 0) {
        fmt::format_to(std::back_inserter(svg),
                       "<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' fill='{}' "
                       "fill-opacity='{:.2f}'/>\n",
                       window_.x + static_cast<double>(i), y, end - i, kLane, colour,
                       0.1 + 0.9 * level(i) / kLevels);
      }
      i = end;
    }
  }

 private:
  const Window& window_;
  std::vector<double> on_;
};

bool is_forward(const TimedAction& a) { return a.action.kind == ActionKind::kForward; }

// Finds the first forward pass from the middle of the step on that a backward pass follows, and
// returns the window of the two.
void find_middle(const TrafficPattern& pattern, Seconds& from, Seconds& to) {
  const std::vector<TimedAction>& a = pattern.actions;
  from = Seconds(0);
  to = pattern.span;
  for (std::size_t step = 0; step + 1 < a.size(); ++step) {
    // Start in the middle, go to the end, and wrap around.
    const std::size_t i = (a.size() / 2 + step) % (a.size() - 1);
    if (is_forward(a[i]) && !is_forward(a[i + 1])) {
      from = a[i].start;
      to = a[i + 1].end;
      return;
    }
  }
}

// Ticks count from the start of the window.
void draw_axis(std::string& svg, const Window& w, double y) {
  const double length = w.length().v;
  double unit = 1;
  const char* name = "s";
  if (length < 2e-3) {
    unit = 1e-6;
    name = "µs";
  } else if (length < 2) {
    unit = 1e-3;
    name = "ms";
  }
  const double rough = length / unit / 10;
  const double decade = std::pow(10.0, std::floor(std::log10(rough)));
  const double ratio = rough / decade;
  const double step = decade * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
  const int ticks = static_cast<int>(length / unit / step * 1.0001);
  for (int i = 0; i <= ticks; ++i) {
    const double t = i * step;
    const double x = w.at(w.from + Seconds(t * unit));
    fmt::format_to(
        std::back_inserter(svg),
        "<path d='M{0:.1f} {1:.1f}v4' class='tick'/><text x='{0:.1f}' y='{2:.1f}' class='small' "
        "text-anchor='middle'>{3:.6g}{4}</text>\n",
        x, y, y + 16, t, i == 0 ? fmt::format(" {}", name) : "");
  }
}

double draw_lanes(std::string& svg, const TrafficPattern& pattern, const Window& w, double y,
                  const DimensionBytes& sent) {
  auto label = [&](std::string_view text) {
    fmt::format_to(std::back_inserter(svg),
                   "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n", w.x - 10, y + 12.5,
                   text);
    fmt::format_to(std::back_inserter(svg),
                   "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{}' class='lane'/>\n", w.x,
                   y, w.width, kLane);
  };
  label("compute");
  Coverage forward(w), backward(w);
  for (const TimedAction& a : pattern.actions) {
    (is_forward(a) ? forward : backward).add(a.start, a.end);
  }
  forward.draw(svg, y, "#a8b3c2");
  backward.draw(svg, y, "#5b6778");
  y += kLane + kLaneGap;
  for (const Dimension dimension : kAllDimensions) {
    if (of(sent, dimension).v <= 0) continue;
    label(to_string(dimension));
    Coverage on(w);
    for (const Burst& b : pattern.bursts) {
      if (b.dimension == dimension) on.add(b.start, b.end);
    }
    on.draw(svg, y, dimension_colour(dimension));
    y += kLane + kLaneGap;
  }
  return y;
}

}  // namespace

std::string pattern_strip(const TrafficPattern& pattern, double x, double y, double width,
                          double& height) {
  std::string svg;
  const double top = y;
  DimensionBytes sent{};
  for (const Burst& b : pattern.bursts) of(sent, b.dimension) += b.bytes;

  auto heading = [&](const std::string& text, const std::string& detail) {
    fmt::format_to(std::back_inserter(svg),
                   "<text x='{:.1f}' y='{:.1f}'><tspan class='head'>{}</tspan>"
                   "<tspan dx='10' class='small'>{}</tspan></text>\n",
                   x, y + 12, text, detail);
    y += 24;
  };
  Window whole{Seconds(0), pattern.span, x + kLabelWidth, std::floor(width - kLabelWidth)};
  if (whole.length().v <= 0) return svg;
  Seconds from, to;
  find_middle(pattern, from, to);
  const Window middle{from, to, whole.x, whole.width};

  heading(fmt::format("When GPU {} computes and sends", pattern.gpu),
          "pale: on for part of a pixel's time; compute: light is forward, dark is backward");
  const double lanes_top = y;
  y = draw_lanes(svg, pattern, whole, y, sent);
  fmt::format_to(std::back_inserter(svg),
                 "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' class='lens'/>\n",
                 whole.at(from), lanes_top - 3, std::max(2.0, whole.at(to) - whole.at(from)),
                 y - lanes_top + 1);
  draw_axis(svg, whole, y);
  y += kAxis + 10;

  heading("The framed part, enlarged",
          fmt::format("from {}: one forward and one backward pass, layer by layer",
                      human_seconds(from.v)));
  y = draw_lanes(svg, pattern, middle, y, sent);
  draw_axis(svg, middle, y);
  y += kAxis;
  height = y - top;
  return svg;
}

}  // namespace copus
