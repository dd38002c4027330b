#include "apps/copus/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "apps/copus/common.h"
#include "apps/copus/validate_report.h"
#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"

namespace copus {
namespace {

// A parameter that moved by more than this share is printed even if the rows say little about it.
constexpr double kMoved = 0.05;
constexpr double kNothing = 1e-6;  // a smaller move counts as none, also from a start of 0

namespace fs = std::filesystem;

// Rows that were left out in turn, priced with parameters fitted to the others.
struct LeftOut {
  std::string by;
  std::size_t folds = 0;
  std::vector<PricedRun> runs;
};

struct Outcome {
  std::vector<CalibrationRow> rows;
  Calibration fitted;
  Seconds time;
  std::vector<PricedRun> after;
  std::vector<LeftOut> left_out;
};

LeftOut leave_out(const Outcome& outcome, const CalibrationOptions& options, const std::string& by,
                  std::string (*fold_of)(const MeasuredRun&)) {
  std::vector<std::string> folds;
  for (const CalibrationRow& row : outcome.rows) folds.push_back(fold_of(*row.run));
  LeftOut left{by, std::set<std::string>(folds.begin(), folds.end()).size(), {}};
  if (left.folds < 2) return left;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto prices =
      cross_validate(outcome.rows, folds, options, [&](std::size_t done, std::size_t all) {
        if (terminal) to_stderr(fmt::format("\rleft out by {}: {} of {} ", by, done, all));
        if (terminal && done == all) to_stderr(fmt::format("\r{:60}\r", ""));
      });
  for (std::size_t i = 0; i < prices.size(); ++i) {
    left.runs.push_back({outcome.rows[i].run, prices[i]});
  }
  return left;
}

// Returns a table with the mean error of every source: before the fit, after it, and on rows left
// out.
std::string error_table(std::span<const PricedRun> before, const Outcome& outcome) {
  std::vector<std::string> header = {"source", "rows", "before", "fitted"};
  std::vector<AccuracyReport> reports = {accuracy_report(before), accuracy_report(outcome.after)};
  for (const LeftOut& left : outcome.left_out) {
    if (left.runs.empty()) continue;
    header.push_back(fmt::format("left out by {}", left.by));
    reports.push_back(accuracy_report(left.runs));
  }
  const AccuracyReport& first = reports.front();
  std::vector<std::vector<std::string>> table;
  const auto add = [&](const std::string& name, const auto& figure_of, std::size_t rows) {
    std::vector<std::string> line = {name, std::to_string(rows)};
    for (const AccuracyReport& report : reports) line.push_back(percent(figure_of(report)));
    table.push_back(std::move(line));
  };
  for (std::size_t i = 0; i < first.sources.size(); ++i) {
    const AccuracyReport::Source& source = first.sources[i];
    if (source.all.timed == 0) continue;
    add(
        source.all.source, [i](const auto& r) { return r.sources[i].all.mape; }, source.all.timed);
    if (!source.one_node) continue;
    add(
        "  one node", [i](const auto& r) { return r.sources[i].one_node->mape; },
        source.one_node->timed);
    add(
        "  several nodes", [i](const auto& r) { return r.sources[i].several_nodes->mape; },
        source.several_nodes->timed);
  }
  add(
      "all", [](const auto& r) { return r.all.mape; }, first.all.timed);
  if (first.all.memory_rows > 0) {
    add(
        "peak memory", [](const auto& r) { return r.all.memory_mape; }, first.all.memory_rows);
  }
  return format_table(header, table);
}

// A fit explains its rows if the mean error after it is at most this. A good fit leaves a few
// percent.
constexpr double kUnexplained = 0.25;

// Returns a warning about the result; empty if there is nothing to warn of.
std::string doubt(const Outcome& outcome) {
  const Accuracy all = accuracy_report(outcome.after).all;
  if (!all.mape || *all.mape <= kUnexplained) return "";
  std::size_t slower = 0;
  for (const PricedRun& run : outcome.after) slower += run.timed() && run.signed_error() < 0;
  const std::string way = slower == all.timed ? ", every run slower than predicted"
                          : slower == 0       ? ", every run faster than predicted"
                                              : "";
  return fmt::format(
      "The fit does not explain these runs: they are still {} off on average{}. Before you use it, "
      "check the units, the number of GPUs and the batch of the rows.",
      percent(all.mape), way);
}

void print_text(std::span<const PricedRun> before, const Outcome& outcome) {
  std::vector<std::vector<std::string>> rows;
  std::size_t silent = 0;
  for (const FittedParameter& p : outcome.fitted.parameters) {
    const double moved = std::abs(p.value - p.start);
    const bool stays = moved <= kMoved * std::abs(p.start) || moved < kNothing;
    if (stays && !p.informed && outcome.fitted.intervals_known) {
      ++silent;
      continue;
    }
    rows.push_back(
        {p.key, p.name, fmt::format("{:.4g}", p.start), fmt::format("{:.4g}", p.value),
         fmt::format("{:.4g} to {:.4g}{}", p.low, p.high, p.at_limit ? ", at its limit" : "")});
  }
  fmt::print("fitted in {}{}\n\n{}\n", human_seconds(outcome.time),
             outcome.fitted.converged ? "" : "; the solver did not converge",
             format_table({"of", "<parameter", "before", "fitted", "95% interval"}, rows));
  if (!outcome.fitted.intervals_known) {
    fmt::print(
        "the intervals are those assumed before the fit: the solver could not compute new "
        "ones\n\n");
  }
  if (silent > 0) {
    fmt::print(
        "{} other parameters stay within {:.0f}% of their start: the rows say little about "
        "them\n\n",
        silent, 100 * kMoved);
  }
  fmt::print("mean absolute error of step time, and of peak memory\n{}",
             error_table(before, outcome));
  const bool none_left_out = std::all_of(outcome.left_out.begin(), outcome.left_out.end(),
                                         [](const LeftOut& left) { return left.runs.empty(); });
  if (none_left_out) {
    fmt::print(
        "These errors are on the rows that were fitted. To test the fit on rows left out, add runs "
        "of another model or number of GPUs.\n");
  }
  if (const std::string why = doubt(outcome); !why.empty()) fmt::print("\n{}\n\n", why);
  for (const LeftOut& left : outcome.left_out) {
    if (left.runs.empty()) {
      fmt::print("no rows were left out by {0}: all rows have the same {0}\n", left.by);
    } else {
      fmt::print("left out by {}: each of {} in turn, priced with a fit to the others\n", left.by,
                 left.folds);
    }
  }
}

Json to_json(std::span<const PricedRun> before, const Outcome& outcome) {
  Json json;
  json["seconds"] = outcome.time.v;
  json["converged"] = outcome.fitted.converged;
  json["intervals_known"] = outcome.fitted.intervals_known;
  for (const FittedParameter& p : outcome.fitted.parameters) {
    json["parameters"].push_back({{"of", p.key},
                                  {"name", p.name},
                                  {"before", p.start},
                                  {"value", p.value},
                                  {"low", p.low},
                                  {"high", p.high},
                                  {"informed", p.informed},
                                  {"at_limit", p.at_limit}});
  }
  if (const std::string why = doubt(outcome); !why.empty()) json["warning"] = why;
  const auto figures = [](const AccuracyReport& report) {
    Json all;
    const auto put = [&](const std::string& name, const Accuracy& a) {
      Json one = {{"rows", a.timed}};
      one["mape"] = number_or_null(a.mape);
      one["memory_mape"] = number_or_null(a.memory_mape);
      one["spearman_median"] = number_or_null(a.spearman_median);
      one["regret_mean"] = number_or_null(a.regret_mean);
      all[name] = std::move(one);
    };
    for (const auto& source : report.sources) {
      put(source.all.source, source.all);
      if (source.one_node) put(source.all.source + ", one node", *source.one_node);
      if (source.several_nodes) put(source.all.source + ", several nodes", *source.several_nodes);
    }
    put("all", report.all);
    return all;
  };
  json["before"] = figures(accuracy_report(before));
  json["fitted"] = figures(accuracy_report(outcome.after));
  for (const LeftOut& left : outcome.left_out) {
    if (!left.runs.empty()) json["left_out_by_" + left.by] = figures(accuracy_report(left.runs));
  }
  return json;
}

// Returns the text of a cluster file: the fitted cluster, as large as the largest job of the rows.
Result<std::string> cluster_file(const Outcome& outcome, const std::string& path) {
  std::set<std::string> gpus, networks, frameworks;
  const CalibrationRow* largest = nullptr;
  for (const CalibrationRow& row : outcome.rows) {
    if (!row.run->problem.empty()) continue;
    gpus.insert(row.run->cluster.gpu.name);
    if (row.run->cluster.nodes > 1) {
      networks.insert(scope_key(ParameterScope::kNetwork, row.run->cluster, *row.profile));
    }
    frameworks.insert(row.profile->name);
    if (largest == nullptr || row.run->cluster.gpus() > largest->run->cluster.gpus()) {
      largest = &row;
    }
  }
  for (const auto& [what, names] : {std::pair{"GPUs", gpus}, std::pair{"networks", networks},
                                    std::pair{"frameworks", frameworks}}) {
    if (names.size() > 1) {
      return field_error("--calibrate",
                         "got {} for rows of {} different {} ({}), but a cluster file holds one; "
                         "want a folder, which can hold several, or rows of one",
                         path, names.size(), what, fmt::join(names, "; "));
    }
  }
  if (largest == nullptr) {
    return field_error("--calibrate", "got no row that can be priced; want at least one");
  }
  ClusterSpec cluster = cluster_of_run(*largest->run, *largest->profile);
  FrameworkProfile profile = *largest->profile;
  outcome.fitted.apply(cluster, profile);
  cluster.name = fs::path(path).stem().string();
  profile.network = Json();  // the cluster has the fitted network
  cluster.framework = framework_to_json(profile);
  return cluster_to_json(cluster).dump(2) + "\n";
}

// Writes gpus.json and frameworks/ into `folder`, for COPUS_CATALOG.
Result<void> write_catalog(const Outcome& outcome, const fs::path& folder) {
  Json gpus = Json::object();
  std::map<std::string, FrameworkProfile> profiles;
  std::map<std::string, std::set<std::string>> networks;  // by framework
  for (const CalibrationRow& row : outcome.rows) {
    if (!row.run->problem.empty()) continue;
    ClusterSpec cluster = cluster_of_run(*row.run, *row.profile);
    FrameworkProfile profile = *row.profile;
    outcome.fitted.apply(cluster, profile);
    gpus[cluster.gpu.name] = gpu_to_json(cluster.gpu);
    gpus[cluster.gpu.name].erase("name");
    const auto [known, is_new] = profiles.try_emplace(profile.name, profile);
    if (cluster.nodes < 2) continue;
    networks[profile.name].insert(scope_key(ParameterScope::kNetwork, cluster, profile));
    const Json whole = cluster_to_json(cluster);
    for (const char* key : {"network_efficiency", "network_latency_us", "network_base_latency_us",
                            "network_scale_penalty", "network_congestion"}) {
      known->second.network[key] = whole.at(key);
    }
  }
  for (const auto& [name, keys] : networks) {
    if (keys.size() < 2) continue;
    profiles.at(name).network = Json();
    to_stderr(
        fmt::format("copus: {} has runs on {} networks, but a profile holds one network: "
                    "the profile is written without one ({})\n",
                    name, keys.size(), fmt::join(keys, "; ")));
  }
  std::error_code failed;
  fs::create_directories(folder / "frameworks", failed);
  if (failed) {
    return field_error("--calibrate", "{}: cannot be made a folder: {}", folder.string(),
                       failed.message());
  }
  COPUS_TRY_VOID(write_file((folder / "gpus.json").string(), gpus.dump(2) + "\n"));
  for (const auto& [name, profile] : profiles) {
    Json json = framework_to_json(profile);
    json.erase("name");
    COPUS_TRY_VOID(
        write_file((folder / "frameworks" / (name + ".json")).string(), json.dump(2) + "\n"));
  }
  return {};
}

}  // namespace

Result<int> run_calibration(std::span<const PricedRun> runs,
                            std::span<const FrameworkProfile* const> profiles,
                            const CalibrateArgs& args) {
  if (!can_calibrate()) {
    return field_error("--calibrate",
                       "this copus was built without the Ceres solver; want one built "
                       "where libceres-dev is installed");
  }
  std::vector<const MeasuredRun*> measured;
  for (const PricedRun& priced : runs) measured.push_back(priced.run);
  Outcome outcome;
  outcome.rows = balanced_rows(measured, profiles);
  CalibrationOptions options;
  options.from_scratch = args.from_scratch;
  std::set<std::string> keys;
  for (const CalibrationRow& row : outcome.rows) {
    if (!row.run->problem.empty()) continue;
    for (const ParameterScope scope :
         {ParameterScope::kGpu, ParameterScope::kNetwork, ParameterScope::kFramework}) {
      keys.insert(scope_key(scope, row.run->cluster, *row.profile));
    }
  }
  if (!args.keep.empty()) {
    for (const std::string_view key : split(args.keep, ';')) {
      if (!keys.contains(std::string(key))) {
        std::vector<std::string> known;
        for (const std::string& each : keys) known.push_back(fmt::format("{:?}", each));
        return field_error("--keep", "got {:?}; want one of {}", key, join_or(known));
      }
      options.keep.emplace_back(key);
    }
  }
  const auto is_usable = [](const PricedRun& priced) {
    return priced.timed() || (priced.price && !priced.run->failed && priced.run->peak_memory);
  };
  if (std::none_of(runs.begin(), runs.end(), is_usable)) {
    return field_error("--calibrate",
                       "got {}, but no row that worked, can be priced and has a step_time_s or "
                       "peak_mem_gib; want at least one such row",
                       counted(static_cast<std::int64_t>(runs.size()), "row"));
  }
  const bool to_file = args.to.ends_with(".json");
  if (to_file) COPUS_TRY_VOID(cluster_file(outcome, args.to));  // finds errors before the fit

  const auto begin = std::chrono::steady_clock::now();
  outcome.fitted = calibrate(outcome.rows, options);
  outcome.time = seconds_since(begin);
  for (const CalibrationRow& row : outcome.rows) {
    outcome.after.push_back({row.run, price(*row.run, *row.profile, outcome.fitted)});
  }
  outcome.left_out.push_back(
      leave_out(outcome, options, "model", [](const MeasuredRun& run) { return run.model.name; }));
  outcome.left_out.push_back(leave_out(outcome, options, "scale", [](const MeasuredRun& run) {
    return std::to_string(run.plan.gpus());
  }));
  if (to_file) {
    COPUS_TRY(const std::string text, cluster_file(outcome, args.to));
    COPUS_TRY_VOID(write_file(args.to, text));
  } else {
    COPUS_TRY_VOID(write_catalog(outcome, args.to));
  }
  if (args.json) {
    fmt::print("{}\n", to_json(runs, outcome).dump(2, ' ', false, Json::error_handler_t::replace));
    return kOk;
  }
  fmt::print("{}", args.notes);
  print_text(runs, outcome);
  fmt::print("\nwritten to {}: {}\n", args.to,
             to_file ? "give it as --cluster to plan, predict, traffic, compare or train"
                     : "set COPUS_CATALOG to use it");
  return kOk;
}

}  // namespace copus
