// SvgPage: what the pictures share. A self-contained SVG, without scripts or fonts.
#pragma once

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace copus {

// On a light and on a dark page.
struct SvgColour {
  std::string_view light;
  std::string_view dark;
};

// Okabe and Ito's colours, which the colour-blind can tell apart, without black and yellow (one of
// them vanishes on any page), and two that keep the distance; on a dark page the blues are lighter.
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
  // `content` is escaped. The classes "title", "head" and "small" are there.
  void text(double x, double y, std::string_view content, const char* attributes = "");

  // More CSS rules, for every page and for a dark one alone. A picture that was given none for dark
  // pages is light on them too.
  void style(std::string_view every_page, std::string_view dark_page = "");
  // The class `name`, whose currentColor it is.
  void style_colour(std::string_view name, const SvgColour& colour);

  std::string document(double width, double height) const;

 private:
  std::string body_, rules_, dark_rules_;
};

}  // namespace copus
