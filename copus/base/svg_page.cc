#include "copus/base/svg_page.h"

#include "copus/base/text.h"

namespace copus {

void SvgPage::text(double x, double y, std::string_view content, const char* attributes) {
  add("<text x='{:.1f}' y='{:.1f}' {}>{}</text>\n", x, y, attributes, xml_text(content));
}

void SvgPage::style(std::string_view every_page, std::string_view dark_page) {
  rules_ += every_page;
  dark_rules_ += dark_page;
}

void SvgPage::style_colour(std::string_view name, const SvgColour& colour) {
  style(fmt::format(".{}{{color:{}}}", name, colour.light),
        fmt::format(".{}{{color:{}}}", name, colour.dark));
}

std::string SvgPage::document(double width, double height) const {
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1:.0f}' "
      "viewBox='0 0 {0} {1:.0f}'>\n"
      "<style>text{{font:12.5px system-ui,'Helvetica Neue',Arial,sans-serif;fill:#1e293b}}"
      ".title{{font-size:19px;font-weight:600}}.head{{font-size:14px;font-weight:600}}"
      ".small{{font-size:11px;fill:#475569}}.page{{fill:#ffffff}}{2}",
      width, height, rules_);
  if (!dark_rules_.empty()) {
    svg += fmt::format(
        "\n@media (prefers-color-scheme:dark){{text{{fill:#e2e8f0}}.small{{fill:#a3b1c6}}"
        ".page{{fill:#0f172a}}{}}}",
        dark_rules_);
  }
  return svg + "</style>\n<rect width='100%' height='100%' class='page'/>\n" + body_ + "</svg>\n";
}

}  // namespace copus
