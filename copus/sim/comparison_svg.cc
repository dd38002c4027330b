#include "copus/sim/comparison_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "copus/base/text.h"
#include "copus/sim/comparison_panels.h"

namespace copus {
namespace {

constexpr double kPageWidth = 1160;
constexpr double kLegendX = kPlotEnd + 30;
constexpr double kLegendEnd = kPageWidth - 24;
constexpr double kLegendRow = 19;

const PolicyResult* main_policy(const Comparison& comparison) {
  const PolicyResult* found = nullptr;
  for (const PolicyResult& result : comparison.policies) {
    const bool ours = result.policy.rule == Rule::kCopus;
    if (ours && (found == nullptr || result.policy.name == "copus")) found = &result;
  }
  return found;
}

// Returns the colour that is `share` of the way from one "#rrggbb" to another.
std::string between(const std::string& from, const std::string& to, double share) {
  std::string out = "#";
  for (std::size_t at = 1; at < from.size(); at += 2) {
    const auto channel = [&](const std::string& colour) {
      return std::stoi(colour.substr(at, 2), nullptr, 16);
    };
    out +=
        fmt::format("{:02x}", std::lround(channel(from) + share * (channel(to) - channel(from))));
  }
  return out;
}

// Chooses lines and colours. Static policies are thin and of one hue, stronger for larger batches.
// The main policy is thick. Each of the rest has its own colour.
std::vector<DrawnPolicy> drawn_of(const Comparison& comparison, SvgPage& page) {
  std::map<std::int64_t, std::string> static_colours;
  for (const PolicyResult& result : comparison.policies) {
    if (result.policy.rule == Rule::kStatic) static_colours[result.policy.batch] = "";
  }
  std::size_t rank = 0;
  for (auto& [batch, colour] : static_colours) {
    colour = fmt::format("s{}", rank);
    const double share =
        static_cast<double>(rank++) / std::max(1.0, static_cast<double>(static_colours.size()) - 1);
    page.style_colour(colour,
                      {between("#b3c8df", "#1d5386", share), between("#3b5672", "#a2caf2", share)});
  }
  for (std::size_t i = 0; i < kSvgColours.size(); ++i) {
    page.style_colour(fmt::format("c{}", i), kSvgColours[i]);
  }
  constexpr int kMain = 3;
  constexpr std::array<int, 5> kOthers = {2, 6, 1, 4, 7};  // no blue, which static policies have
  const PolicyResult* main = main_policy(comparison);
  std::vector<DrawnPolicy> all;
  std::size_t others = 0;
  for (const PolicyResult& result : comparison.policies) {
    if (&result == main) {
      all.push_back({&result, fmt::format("c{}", kMain), 3.4, false, true});
    } else if (result.policy.rule == Rule::kStatic) {
      all.push_back({&result, static_colours[result.policy.batch], 1.3});
    } else if (result.policy.rule == Rule::kOracle) {
      all.push_back({&result, "oracle", 1.8, true});
    } else {
      all.push_back({&result, fmt::format("c{}", kOthers[others++ % kOthers.size()]), 1.7});
    }
  }
  return all;
}

// Returns the y at which the legend ends.
double draw_legend(SvgPage& page, const Comparison& comparison,
                   const std::vector<DrawnPolicy>& all) {
  double y = kLossY - 12;
  page.text(kLegendX, y, "Policy", "class='head'");
  if (!comparison.losses.empty()) {
    page.text(kLegendEnd, y, fmt::format("time to loss {:.4g}", comparison.losses.back()),
              "text-anchor='end' class='small'");
  }
  for (const DrawnPolicy& drawn : all) {
    y += kLegendRow;
    draw_line(page, drawn, fmt::format("M{} {}h26", kLegendX, y - 4.5));
    page.text(kLegendX + 36, y, shortened(drawn.result->policy.name, 22));
    if (drawn.result->reached.empty()) continue;
    page.text(kLegendEnd, y, time_text(drawn.result->reached.back().time),
              "text-anchor='end' class='small'");
  }
  return y;
}

std::string subtitle_of(const Comparison& comparison) {
  const PolicyResult* main = main_policy(comparison);
  if (main == nullptr || comparison.fastest.empty()) return "";
  const Speedup& speedup = main->speedup;
  if (!std::isfinite(speedup.average)) {
    return fmt::format("{} did not reach every loss that a baseline reached", main->policy.name);
  }
  return fmt::format(
      "{}: {:+.1f}% on average over the fastest baseline at each loss, {:+.1f}% at its peak",
      main->policy.name, speedup.average, speedup.peak);
}

}  // namespace

std::string comparison_svg(const Comparison& comparison, const std::string& title) {
  SvgPage page;
  page.style(
      ".plot{fill:none;stroke:#334155}.grid{fill:none;stroke:#e8edf3}.oracle{color:#1e293b}"
      ".loss{fill:none;stroke:#94a3b8;stroke-dasharray:2 3}"
      ".change{fill:none;stroke:#d55e00;stroke-opacity:.55}.dot{stroke:#ffffff}"
      ".speedup{font-size:11.5px;font-weight:600}",
      ".plot{stroke:#94a3b8}.grid{stroke:#1e293b}.oracle{color:#e2e8f0}.loss{stroke:#64748b}"
      ".dot{stroke:#0f172a}");
  const std::vector<DrawnPolicy> all = drawn_of(comparison, page);
  const TimeAxis time(all, comparison.losses.size());
  page.text(30, 34, shortened(title, 90), "class='title'");
  page.text(30, 57, subtitle_of(comparison));
  draw_loss_panel(page, comparison, all, time);
  const double legend_end = draw_legend(page, comparison, all);
  const double panel_end = draw_batch_panel(page, all, time, kLossY + kLossHeight + 44);
  return page.document(kPageWidth, std::max(legend_end, panel_end) + 16);
}

}  // namespace copus
