// Prints a comparison as text and as JSON.
#include <fmt/format.h>

#include <cmath>

#include "apps/copus/compare.h"
#include "copus/base/text.h"

namespace copus {
namespace {

const PolicyResult* find(const Comparison& comparison, const std::string& name) {
  for (const PolicyResult& result : comparison.policies) {
    if (result.policy.name == name) return &result;
  }
  return nullptr;
}

// Returns the policy of the headline: `copus` if it was compared, or else the first policy with its
// rule.
const PolicyResult* headline(const Comparison& comparison) {
  if (const PolicyResult* copus = find(comparison, "copus")) return copus;
  for (const PolicyResult& result : comparison.policies) {
    if (result.policy.rule == Rule::kCopus) return &result;
  }
  return nullptr;
}

// 7.1 -> "7.1 s", 171 -> "2:51", 5000 -> "1:23:20".
std::string clock(Seconds time) {
  const double seconds = time.v;
  if (!std::isfinite(seconds)) return "never";
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string gain_text(double value) {
  return std::isfinite(value) ? fmt::format("{:+.1f}%", value) : "-";
}

std::string policies_table(const Comparison& comparison) {
  std::vector<std::string> header = {"policy"};
  for (const double loss : comparison.losses) header.push_back(fmt::format("to {:g}", loss));
  for (const char* name : {"switches", "of layout", "pauses", "average", "peak"})
    header.emplace_back(name);
  std::vector<std::vector<std::string>> rows;
  for (const PolicyResult& result : comparison.policies) {
    std::vector<std::string> row = {result.policy.name};
    for (const Reached& reached : result.reached) row.push_back(clock(reached.time));
    row.push_back(fmt::format("{:.3g}", result.switches));
    row.push_back(fmt::format("{:.3g}", result.layout_switches));
    row.push_back(result.pause > Seconds() ? human_seconds(result.pause) : "-");
    const bool rated = !result.policy.baseline() && !comparison.fastest.empty();
    row.push_back(rated ? gain_text(result.speedup.average) : "");
    row.push_back(rated ? gain_text(result.speedup.peak) : "");
    rows.push_back(std::move(row));
  }
  return format_table(header, rows);
}

std::string speedup_table(const Comparison& comparison, const PolicyResult& copus) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t l = 0; l < comparison.fastest.size(); ++l) {
    const Speedup& speedup = copus.speedup;
    rows.push_back({fmt::format("{:g}", comparison.losses[l]), comparison.fastest[l].name,
                    clock(comparison.fastest[l].time), clock(copus.reached[l].time),
                    gain_text(speedup.by_loss[l]), fmt::format("x{:.3f}", speedup.throughput[l]),
                    fmt::format("x{:.3f}", speedup.efficiency[l]),
                    fmt::format("x{:.3f}", speedup.pauses[l])});
  }
  return format_table({"loss", "<fastest baseline", "its time", copus.policy.name, "speedup",
                       "samples/s", "fewer samples", "pauses"},
                      rows);
}

std::string way(const PolicyResult& result) {
  std::string text;
  for (const SimPhase& phase : result.first.phases) {
    text += fmt::format("  {:>9}  {}\n", clock(phase.begin), to_text(phase.at));
  }
  return text;
}

Json phases_json(const SimOutcome& run) {
  Json all = Json::array();
  for (const SimPhase& phase : run.phases) {
    all.push_back({{"t", phase.begin.v},
                   {"plan", short_name(phase.at.plan)},
                   {"global_batch", phase.at.global_batch}});
  }
  return all;
}

Json numbers(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values) all.push_back(number_or_null(value));
  return all;
}

Json policy_json(const PolicyResult& result, bool rated) {
  Json times = Json::array();
  for (const Reached& reached : result.reached) {
    times.push_back({{"loss", reached.loss},
                     {"seconds", number_or_null(reached.time.v)},
                     {"samples", reached.samples},
                     {"seconds_low", number_or_null(reached.low.v)},
                     {"seconds_high", number_or_null(reached.high.v)}});
  }
  Json out = {{"name", result.policy.name},
              {"baseline", result.policy.baseline()},
              {"time_to_loss", times},
              {"switches", result.switches},
              {"layout_switches", result.layout_switches},
              {"pause_s", result.pause.v},
              {"failures", result.failures},
              {"lost_s", result.lost.v},
              {"phases", phases_json(result.first)}};
  if (rated && !result.policy.baseline()) {
    const Speedup& s = result.speedup;
    out["speedup"] = {{"avg_pct", s.average},
                      {"avg_pct_low", s.low},
                      {"avg_pct_high", s.high},
                      {"peak_pct", number_or_null(s.peak)},
                      {"by_loss_pct", numbers(s.by_loss)},
                      {"throughput", numbers(s.throughput)},
                      {"efficiency", numbers(s.efficiency)},
                      {"pauses", numbers(s.pauses)}};
  }
  return out;
}

}  // namespace

std::string compare_text(const CompareReport& report) {
  const Comparison& comparison = report.comparison;
  std::string text = fmt::format("{}, {} seed{} of each policy\n", report.title, report.seeds,
                                 report.seeds == 1 ? "" : "s");
  for (const std::string& line : report.assumed) text += fmt::format("  {}\n", line);
  text += "\nTime to a loss (h:min:s, or s), and how much faster than the fastest baseline:\n" +
          policies_table(comparison);
  const PolicyResult* copus = headline(comparison);
  if (copus == nullptr) return text;
  if (!comparison.fastest.empty()) {
    const Speedup& s = copus->speedup;
    text += fmt::format(
        "\n{}: {} on average ({} to {} over seeds), {} at the peak. A speedup is the product of:\n",
        copus->policy.name, gain_text(s.average), gain_text(s.low), gain_text(s.high),
        gain_text(s.peak));
    text += speedup_table(comparison, *copus);
  }
  text +=
      fmt::format("\n{}'s configurations over time (seed 1):\n{}", copus->policy.name, way(*copus));
  if (const PolicyResult* oracle = find(comparison, "oracle")) {
    text += fmt::format("The oracle's configurations over time:\n{}", way(*oracle));
  }
  return text;
}

Json compare_json(const CompareReport& report) {
  const Comparison& comparison = report.comparison;
  Json policies = Json::array(), fastest = Json::array();
  for (const PolicyResult& result : comparison.policies) {
    policies.push_back(policy_json(result, !comparison.fastest.empty()));
  }
  for (const FastestBaseline& base : comparison.fastest) {
    fastest.push_back(
        {{"loss", base.loss}, {"name", base.name}, {"seconds", number_or_null(base.time.v)}});
  }
  const PolicyResult* copus = headline(comparison);
  const bool rated = copus != nullptr && !comparison.fastest.empty();
  return {{"title", report.title},
          {"policies", policies},
          {"thresholds", comparison.losses},
          {"fastest_baseline", fastest},
          {"speedup_avg_pct", rated ? number_or_null(copus->speedup.average) : Json(nullptr)},
          {"speedup_peak_pct", rated ? number_or_null(copus->speedup.peak) : Json(nullptr)},
          {"seeds", report.seeds},
          {"assumed", report.assumed}};
}

}  // namespace copus
