// copus validate: compares predictions with tables of measured runs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "apps/copus/args/shared_options.h"
#include "apps/copus/calibrate.h"
#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "apps/copus/validate_report.h"
#include "copus/base/text.h"
#include "copus/validate/scatter_svg.h"

namespace copus {
namespace {

constexpr const char* kTimeColumn = "predicted_step_time_s";
constexpr const char* kMemoryColumn = "predicted_peak_mem_gib";

struct ValidateArgs : OptionGroup {
  Option<std::vector<std::string>> measured{
      this, "--measured", list_of(text("FILE")),
      "tables of measured runs (CSV; docs/accuracy.md lists the columns)", Required()};
  Option<std::string> out{this, "--out", text("FILE"),
                          "write every row with predicted_step_time_s and predicted_peak_mem_gib "
                          "to this CSV file"};
  Option<std::string> plot{this, "--plot", text("FILE"),
                           "draw predicted against measured, and the spread of the errors, into "
                           "this SVG file"};
  FrameworkOption framework{this, "of every row: ", Otherwise{"the framework column of each row"}};
  AssumeOption assume{this};
  Option<std::int64_t> top{this, "--top", integer(0, 1'000'000),
                           "how many of the worst rows to print, each with a likely reason", 10};
  Option<std::string> calibrate{
      this, "--calibrate", text("FILE.json|FOLDER"),
      "fit GPU, network and framework to the rows, print the errors of rows left out, and write "
      "the result to a cluster file, or to a folder for COPUS_CATALOG"};
  Option<std::string> keep{
      this, "--keep", text("NAME;..."),
      "with --calibrate: GPUs, networks or frameworks that are not fitted, as \"megatron;A100\""};
  Option<bool> from_scratch{
      this, "--from-scratch", flag(),
      "with --calibrate: start the fit from general defaults, the same for every GPU and "
      "framework, not from the catalog's values",
      false};
  JsonOption json{this};
};

Result<std::vector<MeasuredFile>> read_files(const std::vector<std::string>& paths) {
  std::vector<MeasuredFile> files;
  for (const std::string& path : paths) {
    if (std::count(paths.begin(), paths.end(), path) > 1) {
      return field_error("--measured", "got {} twice; want it once", path);
    }
    COPUS_TRY(MeasuredFile file, read_measured(path));
    if (file.runs.empty()) {
      return make_error("{}: got column names and no row; want at least one measured run", path);
    }
    files.push_back(std::move(file));
  }
  return files;
}

// The profile for each row, with `assume` applied.
class Profiles {
 public:
  // `name`: the profile of all rows; empty: each row names its own.
  static Result<Profiles> create(const std::string& name, const std::string& assume) {
    Profiles profiles;
    COPUS_TRY(FrameworkProfile fallback,
              framework_profile(name.empty() ? kDefaultFramework : name));
    profiles.is_fixed_ = !name.empty();
    // Loads all profiles now, so that a file that cannot be read is an error and does not look like
    // a framework without a profile.
    for (const std::string& each : framework_names()) {
      COPUS_TRY(FrameworkProfile profile, framework_profile(each));
      COPUS_TRY_VOID(assume_all(profile, assume));
      profiles.known_.emplace(each, std::move(profile));
    }
    COPUS_TRY_VOID(assume_all(fallback, assume));
    profiles.fallback_ = std::move(fallback);
    return profiles;
  }

  // Returns the profile of the run. If the run's own framework has none, records this in the run
  // and in the validation.
  const FrameworkProfile& of(MeasuredRun& run, Validation& validation) {
    if (is_fixed_) return fallback_;
    if (const auto found = known_.find(run.framework); found != known_.end()) return found->second;
    run.assumed.push_back(fmt::format("framework={}", fallback_.name));
    if (!run.framework.empty()) ++validation.unknown_frameworks[run.framework];
    return fallback_;
  }

 private:
  static Result<void> assume_all(FrameworkProfile& profile, const std::string& assume) {
    COPUS_TRY(profile.options, apply_assumptions(profile.options, assume));
    if (profile.early_gpt) {
      COPUS_TRY(profile.early_gpt, apply_assumptions(*profile.early_gpt, assume));
    }
    return {};
  }

  bool is_fixed_ = false;
  FrameworkProfile fallback_;
  std::map<std::string, FrameworkProfile> known_;
};

Validation price_all(std::vector<MeasuredFile>& files, Profiles& profiles,
                     std::vector<const FrameworkProfile*>& used) {
  Validation validation;
  for (MeasuredFile& file : files) {
    for (MeasuredRun& run : file.runs) {
      const FrameworkProfile& profile = profiles.of(run, validation);
      validation.runs.push_back({&run, price(run, profile)});
      used.push_back(&profile);
    }
  }
  return validation;
}

// Returns the index of `column` in `columns`; appends it if it is missing.
std::size_t place_of(std::vector<std::string>& columns, const std::string& column) {
  const auto found = std::find(columns.begin(), columns.end(), column);
  const auto place = static_cast<std::size_t>(found - columns.begin());
  if (found == columns.end()) columns.push_back(column);
  return place;
}

// Returns a CSV table with every row of every file: the columns of all files, and the predictions.
std::string predictions_csv(const std::vector<MeasuredFile>& files, const Validation& validation) {
  std::vector<std::string> columns;
  std::vector<std::vector<std::size_t>> places;  // of each file's columns
  for (const MeasuredFile& file : files) {
    std::vector<std::size_t>& of_file = places.emplace_back();
    for (const std::string& column : file.table.columns) {
      of_file.push_back(place_of(columns, column));
    }
  }
  const std::size_t time_place = place_of(columns, kTimeColumn);
  const std::size_t memory_place = place_of(columns, kMemoryColumn);
  std::string text = csv_line(columns);
  std::size_t row = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const CsvTable::Row& input : files[f].table.rows) {
      std::vector<std::string> cells(columns.size());
      for (std::size_t c = 0; c < input.cells.size(); ++c) cells[places[f][c]] = input.cells[c];
      const std::optional<RunPrice>& price = validation.runs[row++].price;
      cells[time_place] = price ? fmt::format("{:.6g}", price->step_time.v) : "";
      cells[memory_place] = price ? fmt::format("{:.4f}", to_gib(price->peak_memory)) : "";
      text += csv_line(cells);
    }
  }
  return text;
}

std::string plot_svg(const Validation& validation) {
  ScatterPicture picture;
  std::size_t timed = 0;
  for (const PricedRun& priced : validation.runs) {
    if (!priced.timed()) continue;
    const auto same = [&](const ScatterSeries& s) { return s.name == priced.run->source; };
    auto series = std::find_if(picture.series.begin(), picture.series.end(), same);
    if (series == picture.series.end()) {
      series = picture.series.insert(series, {priced.run->source, {}});
    }
    series->points.push_back({*priced.run->step_time, priced.price->step_time});
    ++timed;
  }
  const Accuracy all = accuracy_of(validation.runs, "all");
  picture.title = "Step time, predicted against measured";
  picture.subtitle =
      fmt::format("{} of {}", counted(timed, "run"),
                  counted(static_cast<std::int64_t>(picture.series.size()), "source"));
  if (all.mape && all.median_ape && all.within_10pct) {
    picture.subtitle +=
        fmt::format("; mean error {:.1f}%, median {:.1f}%, {:.0f}% of runs within 10%",
                    100 * *all.mape, 100 * *all.median_ape, 100 * *all.within_10pct);
  }
  return scatter_svg(picture);
}

// Refuses options that exclude each other, and two outputs to one path.
Result<void> check_outputs(const ValidateArgs& args) {
  const bool calibrates = args.calibrate.given();
  if (!calibrates && (args.keep.given() || *args.from_scratch)) {
    return field_error(*args.from_scratch ? "--from-scratch" : "--keep",
                       "got it without --calibrate; want --calibrate too");
  }
  if (calibrates && args.top.given()) {
    return field_error("--calibrate",
                       "got it with --top; want them in two commands: first fit, then show");
  }
  if (calibrates && (args.out.given() || args.plot.given())) {
    return field_error("--calibrate",
                       "got it with {}; want them in two commands: first fit, then show",
                       args.out.given() ? "--out" : "--plot");
  }
  const std::string out = args.out.value_or(""), plot = args.plot.value_or("");
  return check_output_paths({{"--out", out}, {"--plot", plot}}, *args.json);
}

// Returns 0 if a row was priced. Else says on standard error that none was, and returns 1.
int exit_code_of(const Validation& validation) {
  const auto priced = [](const PricedRun& run) { return run.price.has_value(); };
  if (std::any_of(validation.runs.begin(), validation.runs.end(), priced)) return kOk;
  to_stderr("copus: no row was priced: the report names the reasons\n");
  return kAnswerIsNo;
}

Result<int> run_validate(const ValidateArgs& args) {
  COPUS_TRY_VOID(check_outputs(args));
  COPUS_TRY(Profiles profiles,
            Profiles::create(args.framework.value_or(""), args.assume.value_or("")));
  COPUS_TRY(std::vector<MeasuredFile> files, read_files(*args.measured));
  std::vector<const FrameworkProfile*> used;  // one per run
  Validation validation = price_all(files, profiles, used);
  validation.top = static_cast<std::size_t>(*args.top);
  if (args.calibrate.given()) {
    if (!validation.unknown_frameworks.empty()) {
      return field_error(
          "--calibrate",
          "got rows of {:?}, a framework without a profile; want --framework with the "
          "profile to begin with ({}), or rows of those",
          validation.unknown_frameworks.begin()->first, join_or(framework_names()));
    }
    return run_calibration(validation.runs, used,
                           {*args.calibrate, args.keep.value_or(""), *args.from_scratch, *args.json,
                            notes_to_text(validation)});
  }

  const std::string out = args.out.value_or(""), plot = args.plot.value_or("");
  if (!out.empty()) {
    COPUS_TRY_VOID(write_file(out, predictions_csv(files, validation)));
  }
  if (!plot.empty()) COPUS_TRY_VOID(write_file(plot, plot_svg(validation)));
  const int exit_code = exit_code_of(validation);
  // If a file goes to standard output, nothing else is printed there.
  if (out == "-" || plot == "-") return exit_code;
  if (*args.json) {
    // A cell of a table may contain bytes that are not UTF-8.
    fmt::print("{}\n",
               validation_to_json(validation).dump(2, ' ', false, Json::error_handler_t::replace));
    return exit_code;
  }
  fmt::print("{}", validation_to_text(validation));
  if (!out.empty() || !plot.empty()) fmt::print("\n");
  if (!out.empty()) fmt::print("rows with their predictions written to {}\n", out);
  if (!plot.empty()) fmt::print("picture written to {}\n", plot);
  return exit_code;
}

}  // namespace

void add_validate_command(CommandLine& line) {
  line.add<ValidateArgs>(
      {"validate", "Compare predictions with measured runs: error, ranking, memory and fit",
       "copus validate --measured runs.csv more_runs.csv --out predicted.csv --plot predicted.svg\n"
       "         copus validate --measured runs.csv --calibrate mine.json"},
      run_validate);
}

}  // namespace copus
