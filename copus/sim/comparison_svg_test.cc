#include "copus/sim/comparison_svg.h"

#include <gtest/gtest.h>

#include <regex>

#include "copus/base/svg_testing.h"
#include "copus/sim/sim_testing.h"

namespace copus {
namespace {

Comparison comparison_of(const Scenario& scenario, const std::vector<std::string>& names) {
  const std::vector<Policy> policies = parse_policies(names, batches_of(scenario)).value();
  std::vector<std::vector<SimOutcome>> runs;
  runs.reserve(policies.size());
  for (const Policy& policy : policies) {
    runs.push_back({simulate(scenario, policy, kLosses, 1).value()});
  }
  return compare(policies, runs, kLosses);
}

// Whether the boxes of two texts on one line of the page overlap, at an assumed width per
// character.
bool texts_overlap(const std::string& svg) {
  struct Box {
    double x, end, y;
  };
  std::vector<Box> boxes;
  const std::regex text("<text x='([0-9.]+)' y='([0-9.]+)' ([^>]*)>([^<]*)</text>");
  for (std::sregex_iterator at(svg.begin(), svg.end(), text), none; at != none; ++at) {
    const std::smatch& found = *at;
    const std::string attributes = found[3];
    const bool head = attributes.find("title") != std::string::npos ||
                      attributes.find("head") != std::string::npos;
    const double width = (head ? 9 : 6.4) * static_cast<double>(found[4].length());
    double x = std::stod(found[1]);
    if (attributes.find("'end'") != std::string::npos) x -= width;
    if (attributes.find("'middle'") != std::string::npos) x -= width / 2;
    boxes.push_back({x, x + width, std::stod(found[2])});
  }
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Box &a = boxes[i], &b = boxes[j];
      if (std::abs(a.y - b.y) < 11 && a.x < b.end && b.x < a.end) return true;
    }
  }
  return false;
}

TEST(ComparisonSvg, DrawsEveryPolicyOnceAndTheMovingOnesTwice) {
  const Comparison comparison =
      comparison_of(quiet_scenario(), {"static", "cbs-optimistic", "copus", "oracle"});
  const std::string svg = comparison_svg(comparison, "a model on a cluster");
  expect_valid_svg(svg);
  const std::size_t policies = comparison.policies.size(), moving = 3;
  EXPECT_EQ(count(svg, "stroke='currentColor'"), 2 * policies + moving);  // with the legend's
  EXPECT_EQ(count(svg, "stroke-dasharray='6 4'"), 3U);                    // the oracle
  EXPECT_EQ(count(svg, "stroke-width='3.4'"), 3U);                        // copus
  for (const PolicyResult& result : comparison.policies) {
    EXPECT_EQ(count(svg, ">" + result.policy.name + "<"), 1U) << result.policy.name;
  }
  EXPECT_FALSE(texts_overlap(svg));
}

TEST(ComparisonSvg, SaysTheSpeedups) {
  const Comparison comparison = comparison_of(quiet_scenario(), {"static", "copus"});
  const std::string svg = comparison_svg(comparison, "title");
  const Speedup& speedup = comparison.policies.back().speedup;
  for (const double percent : speedup.by_loss) {
    EXPECT_GE(count(svg, fmt::format(">{:+.1f}%<", percent)), 1U) << percent;
  }
  EXPECT_EQ(count(svg, fmt::format(">copus: {:+.1f}% on average", speedup.average)), 1U);
  EXPECT_EQ(count(svg, fmt::format("{:+.1f}% at its peak<", speedup.peak)), 1U);
  EXPECT_EQ(count(svg, "<circle"), 2 * kLosses.size());
}

TEST(ComparisonSvg, NamesEachLayoutWhereItBegins) {
  Scenario scenario = quiet_scenario(Seconds());
  PolicyOptions& policy = scenario.controller.policy;
  policy.margin = policy.batch_margin = 0;
  policy.noise_caution = 0;
  Comparison comparison = comparison_of(scenario, {"static", "copus"});
  SimOutcome& run = comparison.policies.back().first;
  ASSERT_GT(run.layout_switches, 0);
  const std::string svg = comparison_svg(comparison, "title");
  EXPECT_GE(count(svg, "class='change'"), 2U);
  EXPECT_FALSE(texts_overlap(svg));

  // The most layouts that have names, close together: their names lie above each other.
  run.phases.resize(1);
  for (int i = 0; i < 12; ++i) {
    Configuration at = scenario.candidates[static_cast<std::size_t>(i % 3)].at;
    at.global_batch = 16 << (i / 3);
    run.phases.push_back({run.time * (0.3 + 0.05 * i), at});
  }
  const std::string crowded = comparison_svg(comparison, "title");
  expect_valid_svg(crowded);
  EXPECT_EQ(count(crowded, "class='change'"), 12U);  // the start and 11 moves
  EXPECT_EQ(count(crowded, ".mb1<"), 12U);
  EXPECT_FALSE(texts_overlap(crowded));

  // Layouts for whose names there is no room have only a line.
  for (int i = 0; i < 300; ++i) {
    const Configuration& at = scenario.candidates[static_cast<std::size_t>(i % 3)].at;
    run.phases.push_back({run.time * (0.9 + 0.0003 * i), at});
  }
  const std::string thicket = comparison_svg(comparison, "title");
  expect_valid_svg(thicket);
  EXPECT_GT(count(thicket, "class='change'"), 300U);
  EXPECT_FALSE(texts_overlap(thicket));
}

TEST(ComparisonSvg, LossesCloseTogetherAreNotWrittenOverEachOther) {
  Scenario scenario = quiet_scenario();
  const std::vector<Policy> policies = parse_policies({"static", "copus"}, {16, 64}).value();
  const std::vector<double> losses = {4, 3.9, 3.89, 3.88, 3.87, 3};
  std::vector<std::vector<SimOutcome>> runs;
  runs.reserve(policies.size());
  for (const Policy& policy : policies) {
    runs.push_back({simulate(scenario, policy, losses, 1).value()});
  }
  const std::string svg = comparison_svg(compare(policies, runs, losses), "title");
  EXPECT_EQ(count(svg, "class='loss'"), losses.size());
  EXPECT_FALSE(texts_overlap(svg));
}

TEST(ComparisonSvg, IsSelfContainedAndForLightAndDarkPages) {
  const std::string svg = comparison_svg(comparison_of(quiet_scenario(), {"copus"}), "a<b&c");
  expect_valid_svg(svg);
  EXPECT_EQ(count(svg, "http"), 1U);  // only the namespace
  EXPECT_EQ(count(svg, "<script"), 0U);
  EXPECT_EQ(count(svg, "prefers-color-scheme:dark"), 1U);
  EXPECT_EQ(count(svg, ">a&lt;b&amp;c<"), 1U);
}

TEST(ComparisonSvg, DrawsRunsThatGetNowhere) {
  expect_valid_svg(comparison_svg({}, ""));
  Comparison comparison = comparison_of(quiet_scenario(), {"static:16", "copus", "oracle"});
  std::vector<Policy> policies;
  std::vector<std::vector<SimOutcome>> runs;
  for (PolicyResult& result : comparison.policies) {
    policies.push_back(result.policy);
    SimOutcome run = result.first;
    run.crossings.clear();
    run.points.resize(std::min<std::size_t>(run.points.size(), 2));
    runs.push_back({run});
  }
  const std::string svg = comparison_svg(compare(policies, runs, kLosses), "nowhere");
  expect_valid_svg(svg);
  EXPECT_EQ(count(svg, ">not reached<"), 3U);
  EXPECT_EQ(count(svg, "<circle"), 0U);
  for (std::vector<SimOutcome>& of : runs) of.front() = SimOutcome();
  expect_valid_svg(comparison_svg(compare(policies, runs, kLosses), "nothing"));
}

}  // namespace
}  // namespace copus
