#include "apps/copus/args/resumed_run.h"

#include <gtest/gtest.h>

#include "copus/args/config_file.h"
#include "copus/base/test_folder.h"

namespace copus {
namespace {

// Returns the text of a small run's config.toml, in which `old` is replaced by `now`.
std::string config_with(const TestFolder& folder, const std::string& old, const std::string& now) {
  TrainArgs args;
  args.model.set("tiny", From::kCommandLine);
  args.limits.steps.set(10, From::kCommandLine);
  args.run_dir.set(folder.path(), From::kCommandLine);
  std::string text = resolve_run(args, 1, 1).value().config;
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << text;
  return text.replace(at, old.size(), now);
}

// Resumes the run in the folder, as request_training() does. `args` may have more options.
Result<std::vector<OptionChange>> changes_of(const TestFolder& folder, TrainArgs& args) {
  args.checkpoint.resume.set(true, From::kCommandLine);
  args.run_dir.set(folder.path(), From::kCommandLine);
  COPUS_TRY_VOID(read_resumed_config(args, std::nullopt));
  COPUS_TRY(const RunOptions run, resolve_run(args, 1, 1));
  return changed_options(run.run_dir, args);
}

TEST(ResumedRun, ReadsTimesAsEarlierVersionsWroteThem) {
  for (const char* timeout : {"\"300s\"", "\"300\"", "300", "\"5m\""}) {
    const TestFolder folder;
    folder.write("config.toml",
                 config_with(folder, "timeout = \"5m\"", fmt::format("timeout = {}", timeout)));
    TrainArgs args;
    const auto changes = changes_of(folder, args);
    ASSERT_TRUE(changes) << changes.error().message;
    EXPECT_EQ(*args.machine.timeout, Seconds(300)) << timeout;
    EXPECT_EQ(*changes, std::vector<OptionChange>()) << timeout;
  }
}

TEST(ResumedRun, ChangesNothingThatAnEarlierVersionSpelledOtherwise) {
  for (const auto& [old, now] :
       {std::pair{"global-batch = 32", "global_batch = 32"}, std::pair{"lr = 0.0003", "lr = 3e-4"},
        std::pair{"plan = \"dp1.tp1.pp1.mb8\"",
                  "plan = \"tp=1,cp=1,pp=1,vp=1,dp=1,ep=1,micro_batch=8,zero=0,sp=0\""},
        // An earlier version did not have the option, or wrote none of its default.
        std::pair{"bucket-mib = 32\n", ""}, std::pair{"run-dir = \"", "run-dir = \"./"}}) {
    const TestFolder folder;
    folder.write("config.toml", config_with(folder, old, now));
    TrainArgs args;
    const auto changes = changes_of(folder, args);
    ASSERT_TRUE(changes) << changes.error().message;
    EXPECT_EQ(*changes, std::vector<OptionChange>()) << now;
  }
}

TEST(ResumedRun, SaysWhichOptionsItHasOtherwise) {
  const TestFolder folder;
  folder.write("config.toml", config_with(folder, "keep = 2\n", "keep = 2\nuntil-loss = 3\n"));
  TrainArgs args;
  args.optimizer.lr.set(1e-3, From::kCommandLine);
  args.machine.timeout.set(Seconds(90), From::kCommandLine);
  args.evaluation.every.set(5, From::kCommandLine);
  EXPECT_EQ(changes_of(folder, args).value(),
            (std::vector<OptionChange>{
                {"lr", "0.0003", "0.001"}, {"timeout", "5m", "90s"}, {"eval-every", "", "5"}}));
}

TEST(ResumedRun, MayEndAdapting) {
  const TestFolder folder;
  folder.write("config.toml", config_with(folder, "adapt = \"off\"", "adapt = \"batch\""));
  TrainArgs args;
  args.adapt.adapt.set(Adapt::kOff, From::kCommandLine);
  EXPECT_EQ(changes_of(folder, args).value(),
            (std::vector<OptionChange>{{"adapt", "batch", "off"}}));
}

}  // namespace
}  // namespace copus
