#include "copus/tuner/traffic_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "copus/base/svg_page.h"
#include "copus/base/text.h"

namespace copus {
namespace {

constexpr int kLevels = 8;
constexpr double kPageWidth = 1160;
constexpr double kMapX = 76;
constexpr double kMapY = 122;
constexpr double kMapSide = 640;
constexpr double kPanelX = kMapX + kMapSide + 44;
constexpr double kPanelWidth = kPageWidth - kPanelX - 30;

// Returns a shade of the dimension's colour, from pale (level 0) to full.
std::string shade(Dimension dimension, int level) {
  const std::string full = dimension_colour(dimension);
  const double strength = 0.32 + 0.68 * level / (kLevels - 1);
  std::string out = "#";
  for (std::size_t at = 1; at < full.size(); at += 2) {  // #rrggbb
    const double c = std::stoi(full.substr(at, 2), nullptr, 16);
    out += fmt::format("{:02x}", static_cast<int>(std::lround(255 + (c - 255) * strength)));
  }
  return out;
}

struct Cell {
  std::int32_t row, column;
  Dimension dimension;  // the dimension that sends most there
  Bytes bytes;          // of all dimensions
};

std::vector<Cell> cells_of(const Traffic& traffic) {
  std::vector<Cell> cells;
  Bytes most;
  for (const Flow& flow : traffic.flows) {  // ordered, so the flows of a cell are consecutive
    if (cells.empty() || cells.back().row != flow.source ||
        cells.back().column != flow.destination) {
      cells.push_back({flow.source, flow.destination, flow.dimension, Bytes(0)});
      most = Bytes(0);
    }
    if (flow.bytes > most) {
      most = flow.bytes;
      cells.back().dimension = flow.dimension;
    }
    cells.back().bytes += flow.bytes;
  }
  return cells;
}

// Maps bytes to one of kLevels, evenly on a logarithmic scale.
struct LogScale {
  Bytes low{std::numeric_limits<double>::infinity()};
  Bytes high;

  void include(Bytes b) {
    low = min(low, b);
    high = max(high, b);
  }
  int level(Bytes b) const {
    if (!(high.v > low.v * 1.000001)) return kLevels - 1;
    const double at = std::log(b.v / low.v) / std::log(high.v / low.v);
    return std::clamp(static_cast<int>(std::lround(at * (kLevels - 1))), 0, kLevels - 1);
  }
};

// Neighbours of equal colour are merged into one rectangle, and all rectangles of a colour into one
// path. A matrix of 512 cells per side then stays below a megabyte.
void draw_cells(SvgPage& page, const std::vector<Cell>& cells, const LogScale& scale,
                double pixels) {
  std::array<std::array<std::string, kLevels>, kDimensions> paths;
  for (std::size_t i = 0; i < cells.size();) {
    const Cell& cell = cells[i];
    const int level = scale.level(cell.bytes);
    std::size_t end = i + 1;
    while (end < cells.size() && cells[end].row == cell.row &&
           cells[end].column == cells[end - 1].column + 1 &&
           cells[end].dimension == cell.dimension && scale.level(cells[end].bytes) == level) {
      ++end;
    }
    const auto run = static_cast<double>(end - i);
    fmt::format_to(
        std::back_inserter(
            paths[static_cast<std::size_t>(cell.dimension)][static_cast<std::size_t>(level)]),
        "M{:g} {:g}h{:g}v{:g}h-{:g}z", cell.column * pixels, cell.row * pixels, run * pixels,
        pixels, run * pixels);
    i = end;
  }
  for (const Dimension dimension : kAllDimensions) {
    for (int level = 0; level < kLevels; ++level) {
      const std::string& path =
          paths[static_cast<std::size_t>(dimension)][static_cast<std::size_t>(level)];
      if (!path.empty()) page.add("<path fill='{}' d='{}'/>\n", shade(dimension, level), path);
    }
  }
}

double cell_pixels(const Traffic& traffic) {
  return std::max(1.0, std::floor(kMapSide / static_cast<double>(traffic.gpus)));
}

void draw_map(SvgPage& page, const Traffic& traffic, const std::vector<Cell>& cells,
              const LogScale& scale, std::int64_t gpus_per_cell) {
  const double pixels = cell_pixels(traffic);
  const double side = static_cast<double>(traffic.gpus) * pixels;
  const std::int64_t per_node = traffic.gpus_per_node;
  page.add("<g transform='translate({} {})' shape-rendering='crispEdges'>\n", kMapX, kMapY);
  page.add("<rect width='{0}' height='{0}' fill='#f6f8fa'/>\n", side);
  const double pitch = pixels * static_cast<double>(per_node);
  const bool has_grid = gpus_per_cell == 1 && pitch >= 5 && per_node < traffic.gpus;
  auto draw_grid = [&] {
    std::string lines;
    for (std::int64_t gpu = per_node; gpu < traffic.gpus; gpu += per_node) {
      lines += fmt::format("M{0} 0V{1}M0 {0}H{1}", static_cast<double>(gpu) * pixels, side);
    }
    page.add("<path d='{}' stroke='#64748b' stroke-opacity='{}' fill='none'/>\n", lines,
             pitch >= 16 ? 0.55 : 0.25);
  };
  // Lines are drawn above the cells, unless the cells are so small that the lines would hide them.
  constexpr double kThin = 4;
  if (has_grid && pixels < kThin) draw_grid();
  draw_cells(page, cells, scale, pixels);
  if (has_grid && pixels >= kThin) draw_grid();
  page.add("<rect width='{0}' height='{0}' fill='none' stroke='#334155'/>\n</g>\n", side);

  // At most about 16 labels per side, at the first GPU of a node.
  std::int64_t step = gpus_per_cell == 1 && traffic.gpus > 16 ? per_node : 1;
  while (traffic.gpus / step > 16) step *= 2;
  for (std::int64_t i = 0; i < traffic.gpus; i += step) {
    const double middle = (static_cast<double>(i) + 0.5) * pixels;
    const std::string name = fmt::format("{}", i);
    page.text(kMapX - 7, kMapY + middle + 4, name, "text-anchor='end' class='small'");
    page.text(kMapX + middle, kMapY - 7, name, "text-anchor='middle' class='small'");
  }
  if (has_grid) {
    page.text(kMapX + side, kMapY - 24, "grid lines: nodes", "class='small' text-anchor='end'");
  }
  std::string unit = "GPU";
  if (gpus_per_cell == per_node && per_node > 1) unit = "node";
  if (gpus_per_cell > per_node) unit = fmt::format("group of {} nodes", gpus_per_cell / per_node);
  page.text(kMapX + side / 2, kMapY - 24, fmt::format("to {}", unit), "text-anchor='middle'");
  page.add("<text transform='translate({} {}) rotate(-90)' text-anchor='middle'>from {}</text>\n",
           kMapX - 42, kMapY + side / 2, unit);
}

double draw_shares(SvgPage& page, const Traffic& traffic, double y) {
  const DimensionBytes totals = traffic.totals();
  const double total = std::max(1.0, traffic.total().v);
  page.text(kPanelX, y, fmt::format("Sent per step: {}", human_bytes(total)), "class='head'");
  y += 12;
  constexpr double kBarX = kPanelX + 78;
  constexpr double kBarWidth = kPanelWidth - 78 - 130;
  for (const Dimension dimension : kAllDimensions) {
    const double bytes = of(totals, dimension).v;
    if (bytes <= 0) continue;
    page.text(kPanelX, y + 14, std::string(to_string(dimension)));
    page.add("<rect x='{}' y='{}' width='{}' height='14' class='lane'/>\n", kBarX, y + 3,
             kBarWidth);
    page.add("<rect x='{}' y='{}' width='{:.1f}' height='14' fill='{}'/>\n", kBarX, y + 3,
             std::max(1.0, kBarWidth * bytes / total), dimension_colour(dimension));
    const double share = 100 * bytes / total;
    page.text(kBarX + kBarWidth + 52, y + 14,
              share < 0.01 ? "<0.01%" : fmt::format("{:.2f}%", share), "text-anchor='end'");
    page.text(kPanelX + kPanelWidth, y + 14, human_bytes(bytes), "text-anchor='end'");
    y += 22;
  }
  return y + 26;
}

double draw_scale(SvgPage& page, const Traffic& traffic, const LogScale& scale, double y,
                  bool by_gpu) {
  page.text(kPanelX, y, by_gpu ? "From one GPU to another" : "From one cell to another",
            "class='head'");
  page.text(kPanelX, y + 17, "colour: the dimension that sends most; shade: bytes, logarithmic",
            "class='small'");
  y += 26;
  constexpr double kStep = 30;
  const DimensionBytes totals = traffic.totals();
  for (const Dimension dimension : kAllDimensions) {
    if (of(totals, dimension).v <= 0) continue;
    page.text(kPanelX, y + 13, std::string(to_string(dimension)));
    for (int level = 0; level < kLevels; ++level) {
      page.add("<rect x='{}' y='{}' width='{}' height='14' fill='{}'/>\n",
               kPanelX + 78 + level * kStep, y + 2, kStep, shade(dimension, level));
    }
    y += 19;
  }
  page.text(kPanelX + 78, y + 13, human_bytes(scale.low.v), "class='small'");
  page.text(kPanelX + 78 + kStep * kLevels, y + 13, human_bytes(scale.high.v),
            "class='small' text-anchor='end'");
  return y + 48;
}

double draw_links(SvgPage& page, const LinkLoads& links, double y) {
  page.text(kPanelX, y, "Busiest links", "class='head'");
  page.text(kPanelX + 210, y, "load", "class='small' text-anchor='end'");
  page.text(kPanelX + 285, y, "mean", "class='small' text-anchor='end'");
  page.text(kPanelX + kPanelWidth, y, "at full rate", "class='small' text-anchor='end'");
  const std::pair<const char*, const LinkLoad*> rows[] = {{"GPU {}, out", &links.gpu_out},
                                                          {"GPU {}, in", &links.gpu_in},
                                                          {"node {}, out", &links.node_out},
                                                          {"node {}, in", &links.node_in}};
  for (const auto& [name, load] : rows) {
    y += 20;
    page.text(kPanelX, y, fmt::format(fmt::runtime(name), load->worst_at));
    page.text(kPanelX + 210, y, human_bytes(load->worst.v), "text-anchor='end'");
    page.text(kPanelX + 285, y, human_bytes(load->mean.v), "text-anchor='end'");
    page.text(kPanelX + kPanelWidth, y, human_seconds(load->time.v), "text-anchor='end'");
  }
  return y + 40;
}

double draw_duty(SvgPage& page, const TrafficPattern& pattern, double y) {
  page.text(kPanelX, y, fmt::format("GPU {} sends", pattern.gpu), "class='head'");
  page.text(kPanelX + 210, y, "of the step", "class='small' text-anchor='end'");
  page.text(kPanelX + 285, y, "bursts", "class='small' text-anchor='end'");
  for (const Dimension dimension : kAllDimensions) {
    const auto bursts = std::count_if(pattern.bursts.begin(), pattern.bursts.end(),
                                      [=](const Burst& b) { return b.dimension == dimension; });
    if (bursts == 0) continue;
    y += 20;
    page.text(kPanelX, y, std::string(to_string(dimension)));
    page.text(kPanelX + 210, y,
              fmt::format("{:.2f}%", 100 * (pattern.on_time(dimension) / pattern.span)),
              "text-anchor='end'");
    page.text(kPanelX + 285, y, fmt::format("{}", bursts), "text-anchor='end'");
  }
  return y;
}

}  // namespace

const char* dimension_colour(Dimension dimension) {
  switch (dimension) {
    case Dimension::kTp:
      return "#1d4ed8";
    case Dimension::kCp:
      return "#0e7490";
    case Dimension::kEp:
      return "#9333ea";
    case Dimension::kPp:
      return "#c2410c";
    case Dimension::kDp:
      return "#15803d";
    case Dimension::kEmbedding:
      return "#be185d";
  }
  return "#000000";
}

std::string traffic_svg(const TrafficPicture& picture) {
  std::int64_t gpus_per_cell = 1;
  if (picture.traffic.gpus > kMaxCells) gpus_per_cell = picture.traffic.gpus_per_node;
  while (picture.traffic.gpus / gpus_per_cell > kMaxCells) gpus_per_cell *= 2;
  Traffic shown = gpus_per_cell == 1 ? picture.traffic : grouped(picture.traffic, gpus_per_cell);
  shown.gpus_per_node = picture.traffic.gpus_per_node;
  const std::vector<Cell> cells = cells_of(shown);
  LogScale scale;
  for (const Cell& cell : cells) scale.include(cell.bytes);
  if (cells.empty()) scale.low = Bytes(0);

  SvgPage body;
  body.text(30, 34, shortened(picture.title, 95), "class='title'");
  body.text(30, 56, shortened(picture.subtitle, 150));
  draw_map(body, shown, cells, scale, gpus_per_cell);
  double y = draw_shares(body, picture.traffic, kMapY + 6);
  y = draw_scale(body, picture.traffic, scale, y, gpus_per_cell == 1);
  y = draw_links(body, picture.links, y);
  y = draw_duty(body, picture.pattern, y);
  double strip_height = 0;
  const double map_end = kMapY + cell_pixels(shown) * static_cast<double>(shown.gpus);
  const double strip_y = std::max(map_end, y) + 34;
  body.add_raw(pattern_strip(picture.pattern, 30, strip_y, kPageWidth - 60, strip_height));

  const double height = strip_y + strip_height + 16;
  // No rules for a dark page, because the shades fade to white.
  body.style(".lane{fill:#f1f5f9}.tick{stroke:#475569}.lens{fill:none;stroke:#0f172a}");
  return body.document(kPageWidth, height);
}

}  // namespace copus
