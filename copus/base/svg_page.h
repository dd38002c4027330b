// SvgPage: the parts that all pictures share. A picture is one SVG file without scripts and fonts.
#pragma once

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace copus {

// The same colour for a light and for a dark page.
struct SvgColour {
  std::string_view light;
  std::string_view dark;
};

// Okabe and Ito's colours, which colour-blind people can tell apart. Black and yellow are left out,
// because black vanishes on a dark page and yellow on a light one. The last two colours are added;
// they differ enough from the others. The blues are lighter on a dark page.
inline constexpr std::array<SvgColour, 8> kSvgColours = {{{"#0072b2", "#3d9be9"},
                                                          {"#e69f00", "#e69f00"},
                                                          {"#009e73", "#1fb98d"},
                                                          {"#d55e00", "#e8702a"},
                                                          {"#cc79a7", "#d98cb8"},
                                                          {"#56b4e9", "#9bd8ff"},
                                                          {"#8c6bb1", "#a98bd0"},
                                                          {"#888888", "#a0a0a0"}}};

class SvgPage {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }
  void add_raw(std::string_view svg) { body_ += svg; }
  // Escapes `content`. The classes "title", "head" and "small" are defined.
  void text(double x, double y, std::string_view content, const char* attributes = "");

  // Adds CSS rules, for every page and for dark pages only. A picture without rules for dark pages
  // looks the same on them as on light ones.
  void style(std::string_view every_page, std::string_view dark_page = "");
  // Defines the class `name`; its currentColor is `colour`.
  void style_colour(std::string_view name, const SvgColour& colour);

  std::string document(double width, double height) const;

 private:
  std::string body_, rules_, dark_rules_;
};

}  // namespace copus
