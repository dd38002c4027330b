#include "copus/validate/scatter_svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "copus/base/svg_testing.h"

namespace copus {
namespace {

// Returns a point from times in seconds.
ScatterPoint at(double measured, double predicted) {
  return {Seconds(measured), Seconds(predicted)};
}

TEST(ScatterSvg, DrawsAPointPerRunAndALegendPerSource) {
  const std::string svg =
      scatter_svg({"title", "subtitle", {{"one", {at(1, 1.1), at(2, 1.6)}}, {"two", {at(3, 3)}}}});
  expect_valid_svg(svg);
  EXPECT_EQ(count(svg, "<circle"), 3U + 2U);
  EXPECT_EQ(count(svg, ">one<"), 1U);
  EXPECT_EQ(count(svg, ">n = 2, mean error 15.0%<"), 1U);
  EXPECT_EQ(count(svg, ">n = 1, mean error 0.0%<"), 1U);
}

TEST(ScatterSvg, IsSelfContained) {
  const std::string svg = scatter_svg({"t", "s", {{"one", {at(1, 1)}}}});
  EXPECT_EQ(count(svg, "http"), 1U);  // the namespace
  EXPECT_EQ(count(svg, "<script"), 0U);
  EXPECT_EQ(count(svg, "prefers-color-scheme:dark"), 1U);
}

TEST(ScatterSvg, EscapesText) {
  const std::string svg = scatter_svg({"a<b", "c&d", {{"<x>\xff", {at(1, 1)}}}});
  expect_valid_svg(svg);
  EXPECT_EQ(count(svg, ">a&lt;b<"), 1U);
  EXPECT_EQ(count(svg, ">c&amp;d<"), 1U);
  EXPECT_EQ(count(svg, ">&lt;x&gt;?<"), 1U);
}

TEST(ScatterSvg, TicksAreOneTwoFiveInPeoplesUnits) {
  const std::string svg = scatter_svg({"t", "s", {{"one", {at(0.3, 0.3), at(15, 15)}}}});
  for (const char* name : {"200 ms", "500 ms", "1 s", "2 s", "5 s", "10 s", "20 s"}) {
    EXPECT_EQ(count(svg, std::string(">") + name + "<"), 2U) << name;  // on both axes
  }
  EXPECT_EQ(count(svg, ">100 ms<"), 0U);
  EXPECT_EQ(count(svg, ">50 s<"), 0U);
}

TEST(ScatterSvg, TakesAnyRangeOfTimes) {
  for (const double low : {1e-9, 1e-3, 0.999, 1.0, 1e6}) {
    for (const double factor : {1.0, 1.5, 1e3, 1e9}) {
      const std::string svg = scatter_svg({"t", "s", {{"one", {at(low, low * factor)}}}});
      expect_valid_svg(svg);
      EXPECT_EQ(count(svg, "<circle"), 2U);
    }
  }
}

TEST(ScatterSvg, LeavesOutWhatHasNoLogarithm) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      scatter_svg({"t",
                   "s",
                   {{"one", {at(1, 1), at(0, 1), at(1, 0), at(-1, 1), at(nan, 1), at(1, INFINITY)}},
                    {"none", {}}}});
  expect_valid_svg(svg);
  EXPECT_EQ(count(svg, "<circle"), 2U);
  EXPECT_EQ(count(svg, "none<"), 0U);
}

TEST(ScatterSvg, DrawsNothingToo) { expect_valid_svg(scatter_svg({"", "", {}})); }

TEST(ScatterSvg, TellsManySourcesApartByShapeAndEndsTheLegend) {
  ScatterPicture picture{"t", "s", {}};
  for (int i = 0; i < 30; ++i) picture.series.push_back({"source", {at(1.0 + i, 1.0 + i)}});
  const std::string svg = scatter_svg(picture);
  expect_valid_svg(svg);
  EXPECT_GT(count(svg, "<circle"), 10U);
  EXPECT_GT(count(svg, "<rect x="), 8U);
  EXPECT_EQ(count(svg, " more<"), 1U);
}

}  // namespace
}  // namespace copus
