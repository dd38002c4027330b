// The batch panel: the batch of each policy over time as steps, and the names of the main policy's
// layouts above.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "copus/base/text.h"
#include "copus/sim/comparison_panels.h"

namespace copus {
namespace {

constexpr double kLevel = 34;  // between a batch and twice that batch
constexpr double kLane = 3.2;  // between policies with the same batch
constexpr double kNameRow = 15;
constexpr int kMostRows = 12;  // of names; layouts beyond get a line without a name

// The axis of batches, with a level per power of two.
struct BatchAxis {
  int low = 0, high = 0;  // base-2 logarithms
  double top = 0;

  explicit BatchAxis(const std::vector<DrawnPolicy>& all) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const DrawnPolicy& drawn : all) {
      if (drawn.is_static()) continue;
      for (const SimPhase& phase : drawn.run().phases) {
        least = std::min(least, std::log2(static_cast<double>(phase.at.global_batch)));
        most = std::max(most, std::log2(static_cast<double>(phase.at.global_batch)));
      }
    }
    low = static_cast<int>(std::floor(std::min(least, most)));
    high = static_cast<int>(std::ceil(most));
  }
  double height() const { return kLevel * (high - low + 1); }
  double y(double batch) const { return top + kLevel * (high - std::log2(batch) + 0.5); }
};

// A layout and the position from which the run has it.
struct NamedLayout {
  double x;
  std::string name;
  int row = 0;  // counted from the panel upwards

  double end() const { return x + 8 + 6.4 * static_cast<double>(name.size()); }
};

// Returns the run's layout at the beginning of the axis and every later change of layout.
std::vector<NamedLayout> layouts_of(const SimOutcome& run, const TimeAxis& time) {
  std::vector<NamedLayout> all;
  const SimPhase* before = nullptr;
  for (const SimPhase& phase : run.phases) {
    if (phase.begin > time.to) break;
    const bool moved = before == nullptr || !same_placement(before->at.plan, phase.at.plan);
    before = &phase;
    if (!moved) continue;
    if (phase.begin <= time.from) all.clear();
    std::string name = short_name(phase.at.plan);
    name = name.substr(0, name.find(".split"));  // a split can be too long
    all.push_back({time.x(phase.begin), shortened(name, 34)});
  }
  // From right to left: a name goes above all later names whose lines would cross it.
  for (std::size_t i = all.size(); i-- > 0;) {
    for (std::size_t j = i + 1; j < all.size() && all[j].x < all[i].end(); ++j) {
      all[i].row = std::max(all[i].row, all[j].row + 1);
    }
  }
  return all;
}

void draw_layouts(SvgPage& page, const std::vector<NamedLayout>& layouts, double top, double end) {
  for (const NamedLayout& layout : layouts) {
    const bool named = layout.row < kMostRows;
    const double y = named ? top - kNameRow * layout.row - 5 : top + 9;
    if (named) page.text(layout.x + 4, y, layout.name, "class='small'");
    page.add("<path d='M{:.1f} {:.1f}V{:.1f}' class='change'/>\n", layout.x, y - 9, end);
  }
}

// Draws the main policy on the batch's line and the others in lanes above and below it, so that
// policies with the same batch stay apart.
void draw_steps(SvgPage& page, const std::vector<DrawnPolicy>& all, const TimeAxis& time,
                const BatchAxis& axis) {
  int others = 0;
  for (const DrawnPolicy* drawn : in_drawing_order(all)) {
    if (drawn->is_static() || drawn->run().phases.empty()) continue;
    const int place = drawn->main ? 0 : ++others;
    const int lanes = (place + 1) / 2;
    const double lane = kLane * (place % 2 == 0 ? lanes : -lanes);
    std::string path;
    for (const SimPhase& phase : drawn->run().phases) {
      if (phase.begin > time.to) break;
      const double x = time.x(phase.begin);
      const double y = axis.y(static_cast<double>(phase.at.global_batch)) + lane;
      if (phase.begin <= time.from) path.clear();
      path +=
          path.empty() ? fmt::format("M{:.1f} {:.1f}", x, y) : fmt::format("H{:.1f}V{:.1f}", x, y);
    }
    draw_line(page, *drawn, path + fmt::format("H{:.1f}", time.x(drawn->run().time)));
  }
}

}  // namespace

double draw_batch_panel(SvgPage& page, const std::vector<DrawnPolicy>& all, const TimeAxis& time,
                        double top) {
  const DrawnPolicy* main = main_of(all);
  std::vector<NamedLayout> layouts;
  if (main != nullptr) layouts = layouts_of(main->run(), time);
  int rows = 0;
  for (const NamedLayout& layout : layouts)
    rows = std::max(rows, std::min(layout.row + 1, kMostRows));
  const std::string head = main == nullptr
                               ? "Batch over time"
                               : "Batch over time, and the layouts of " + main->result->policy.name;
  page.text(kPlotX, top, head, "class='head'");

  BatchAxis axis(all);
  axis.top = top + 12 + kNameRow * rows;
  const double end = axis.top + axis.height();
  time.draw(page, axis.top, axis.height(), true);
  for (int level = axis.low; level <= axis.high; ++level) {
    const double batch = std::exp2(level), y = axis.y(batch);
    page.add("<path d='M{} {:.1f}h{}' class='grid'/>\n", kPlotX, y, kPlotWidth);
    page.text(kPlotX - 7, y + 4, fmt::format("{:.0f}", batch), "text-anchor='end' class='small'");
  }
  draw_layouts(page, layouts, axis.top, end);
  draw_steps(page, all, time, axis);
  page.add("<rect x='{}' y='{}' width='{}' height='{}' class='plot'/>\n", kPlotX, axis.top,
           kPlotWidth, axis.height());
  page.text(kPlotX + kPlotWidth / 2, end + 38, "time", "text-anchor='middle'");
  return end + 38;
}

}  // namespace copus
