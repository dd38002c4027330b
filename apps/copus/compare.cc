// copus compare: runs policies side by side to the same loss.
#include "apps/copus/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "copus/args/config_file.h"
#include "copus/base/text.h"
#include "copus/sim/comparison_svg.h"

namespace copus {
namespace {

Result<int> run_compare(CompareArgs& args, const std::string& program, int& stopped_by) {
  std::vector<std::string> unused;
  const ConfigRules rules = {.own_table = "compare", .except = {}, .others = &unused};
  if (args.config.given()) {
    COPUS_TRY_VOID(read_config(args, *args.config, From::kConfig, rules));
  }
  const std::string plot = args.plot.value_or("");
  COPUS_TRY_VOID(check_output_paths({{"--plot", plot}}, *args.job.json));
  const std::int64_t seeds = args.seeds.value_or(*args.simulate ? 5 : 3);
  COPUS_TRY(CompareReport report, *args.simulate
                                      ? simulate_comparison(args, seeds)
                                      : live_comparison(args, seeds, program, stopped_by));
  if (*args.simulate && !unused.empty()) {
    report.assumed.push_back(fmt::format("not used in a simulation: {}", fmt::join(unused, ", ")));
  }
  if (!plot.empty()) {
    COPUS_TRY_VOID(write_file(plot, comparison_svg(report.comparison, report.title)));
  }
  if (*args.job.json) {
    fmt::print("{}\n", compare_json(report).dump(2));
  } else if (plot != "-") {
    fmt::print("{}", compare_text(report));
  }
  return kOk;
}

}  // namespace

void add_compare_command(CommandLine& line) {
  line.add<CompareArgs>(
      {"compare", "Policies side by side, to the same loss, live or simulated",
       "copus compare --simulate --model llama-3.2-3b --cluster 1x8xH100-80GB-SXM --seq-len 2048"},
      [&line](CompareArgs& args) {
        int stopped_by = 0;
        Result<int> code = run_compare(args, line.command().front(), stopped_by);
        if (code || stopped_by == 0) return code;
        report(code.error());
        return Result<int>(128 + stopped_by);
      });
}

}  // namespace copus
