#include "apps/copus/args/train_args.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "copus/args/config_file.h"
#include "copus/base/test_folder.h"
#include "copus/base/text.h"

namespace copus {
namespace {

using Texts = std::vector<std::string>;

std::string one_of_words(std::mt19937_64& random, const Texts& words) {
  return words[random() % words.size()];
}

// Returns a value that the option accepts, as written on a command line.
Texts random_texts(const AnyOption& option, std::mt19937_64& random) {
  const ValueForm& form = option.form();
  if (!form.choices.empty()) return {one_of_words(random, form.choices)};
  if (form.placeholder.empty()) return {one_of_words(random, {"true", "false"})};
  if (form.placeholder == "TIME") {
    return {one_of_words(random, {"90s", "10m", "1.5h", "1d", "0.25s", "7s", "3601s"})};
  }
  if (form.placeholder == "LOW:HIGH") return {one_of_words(random, {"1:1", "4:64", "2:1024"})};
  if (form.placeholder == "N|off") return {one_of_words(random, {"1", "off", "1000000000000"})};
  if (form.placeholder == "X|learned") {
    return {one_of_words(random, {"learned", "2", "0.001", "3.74", "1000000"})};
  }
  const std::size_t to = form.range.find(" to ");
  if (to == std::string::npos) {
    Texts texts(form.is_list ? 1 + random() % 3 : 1);
    for (std::string& text : texts) {
      text = one_of_words(random, {"a", "tp=2,pp=1", "with space", "\"quoted\"", "back\\slash",
                                   "a=b", "größe", "tab\t", "-", "'", "#"});
    }
    return texts;
  }
  const double low = parse_number(form.range.substr(0, to), "low", -1e300, 1e300).value();
  const double high = parse_number(form.range.substr(to + 4), "high", -1e300, 1e300).value();
  const double share = std::uniform_real_distribution<double>(0, 1)(random);
  // Values of large ranges are drawn on a logarithmic scale.
  const double value = high > 1000 && share < 0.9 ? low + std::exp(share * std::log(high - low)) - 1
                                                  : low + share * (high - low);
  const double inside = std::min(high, std::max(low, value));
  if (form.placeholder == "N") return {fmt::format("{}", static_cast<std::int64_t>(inside))};
  return {fmt::format("{}", inside)};
}

void give_some(TrainArgs& args, std::mt19937_64& random) {
  for (AnyOption* option : args.options()) {
    if (random() % 2 == 0) continue;
    const Texts texts = random_texts(*option, random);
    const Result<void> read = option->read(texts, From::kCommandLine, option->flag());
    ASSERT_TRUE(read) << read.error().message;
  }
}

Result<void> read_words(TrainArgs& args, const Texts& words) {
  std::map<std::string, Texts> by_flag;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    by_flag[word.substr(0, equals)].push_back(
        equals == std::string::npos ? "true" : word.substr(equals + 1));
  }
  for (const auto& [flag, texts] : by_flag) {
    COPUS_TRY_VOID(args.find(flag.substr(2))->read(texts, From::kCommandLine, flag));
  }
  return {};
}

TEST(TrainArgs, AreTheSameWhenWrittenAsAFileAndReadAgain) {
  const TestFolder folder;
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    TrainArgs args, again;
    give_some(args, random);
    const std::string text = to_toml(args);
    const Result<void> read = read_config(again, folder.write("a.toml", text), From::kConfig);
    ASSERT_TRUE(read) << read.error().message << "\n" << text;
    EXPECT_EQ(to_toml(again), text);
    for (const AnyOption* option : args.options()) {
      const AnyOption* other = again.find(option->name());
      if (!option->written()) continue;
      ASSERT_TRUE(other->known()) << option->flag();
      EXPECT_EQ(other->value(), option->value()) << option->flag();
    }
  }
}

TEST(TrainArgs, AreTheSameWhenSpelledAsACommandLineAndReadAgain) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    TrainArgs args, again;
    give_some(args, random);
    const Texts words = command_words(args, From::kCommandLine);
    const Result<void> read = read_words(again, words);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(command_words(again, From::kCommandLine), words);
    for (const AnyOption* option : args.options()) {
      const AnyOption* other = again.find(option->name());
      EXPECT_EQ(other->from(), option->from()) << option->flag();
      if (!option->given()) continue;
      EXPECT_EQ(other->value(), option->value()) << option->flag();
    }
  }
}

TEST(TrainArgs, EveryDefaultIsAValueThatTheOptionTakes) {
  const TrainArgs usual;
  for (const AnyOption* option : usual.options()) {
    if (!option->known()) continue;
    TrainArgs args;
    const Result<void> read =
        args.find(option->name())->read(spelled(option->value()), From::kConfig, option->flag());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(args.find(option->name())->value(), option->value()) << option->flag();
  }
}

TEST(TrainArgs, NoOptionTakesAnEmptyValueAndTheErrorNamesTheOption) {
  TrainArgs args;
  for (AnyOption* option : args.options()) {
    const Result<void> read = option->read({""}, From::kConfig, "a.toml: " + option->name());
    ASSERT_FALSE(read) << option->flag();
    EXPECT_TRUE(read.error().message.starts_with("a.toml: " + option->name() + ": "))
        << read.error().message;
    EXPECT_FALSE(option->given());
  }
}

// Resolves a small valid run with the options of `more` added.
Result<RunOptions> resolve(TrainArgs& args, const Texts& more, int ranks = 1) {
  Texts words = {"--model=tiny", "--steps=10", "--run-dir=runs/x"};
  words.insert(words.end(), more.begin(), more.end());
  COPUS_TRY_VOID(read_words(args, words));
  return resolve_run(args, ranks, ranks);
}

TEST(ResolveRun, TheFileOfARunGivesTheSameRun) {
  const TestFolder folder;
  for (const Texts& more : std::vector<Texts>{
           {},
           {"--seq-len=32", "--global-batch=8", "--lr=1e-3", "--min-lr=1e-5", "--seed=7"},
           {"--plan=best"},
           {"--plan=best", "--fix=zero=0", "--cluster=1x2xH100-80GB-SXM"},
           {"--adapt=full", "--margin=0.2", "--horizon=90m", "--batch-range=8:64", "--fix=tp=1"},
           {"--adapt=track", "--plan=tp=2,micro_batch=1", "--probe=0.1"},
           {"--base-batch=16", "--checkpoint-every=off", "--keep-every=5", "--eval-every=3"},
           {"--max-restarts=2", "--elastic=1", "--grace=1m", "--on-bad-step=skip", "--spike=8"},
           {"--precision=bf16", "--timeout=30s", "--for=1.5h", "--samples=100"}}) {
    TrainArgs args, again;
    const Result<RunOptions> run = resolve(args, more, 2);
    ASSERT_TRUE(run) << run.error().message;
    const std::string path = folder.write("config.toml", run->config);
    ASSERT_TRUE(read_config(again, path, From::kConfig));
    const Result<RunOptions> same = resolve_run(again, 2, 2);
    ASSERT_TRUE(same) << same.error().message << "\n" << run->config;
    EXPECT_EQ(same->config, run->config);
    EXPECT_EQ(same->adapt.choose_plan, run->adapt.choose_plan);
    ASSERT_EQ(same->adapt.spaces.size(), run->adapt.spaces.size()) << run->config;
    for (std::size_t i = 0; i < run->adapt.spaces.size() && run->adapt.choose_plan; ++i) {
      EXPECT_EQ(same->adapt.spaces[i].given, run->adapt.spaces[i].given) << run->config;
    }
  }
}

TEST(ResolveRun, DefaultsFollowFromOtherOptions) {
  TrainArgs args;
  const RunOptions run = resolve(args, {"--lr=1e-2", "--global-batch=50"}).value();
  EXPECT_DOUBLE_EQ(run.trainer.lr.floor, 1e-3);
  EXPECT_EQ(run.trainer.lr.decay_samples, 500);
  EXPECT_EQ(run.trainer.lr.warmup_samples, 10);
  EXPECT_EQ(run.trainer.base_batch, 50);
  EXPECT_EQ(run.trainer.compute, Compute::kFp32);
  TrainArgs on_gpus;
  EXPECT_EQ(resolve(on_gpus, {"--device=cuda"})->trainer.compute, Compute::kBf16);
}

// config.toml holds only the options that the run uses.
TEST(ResolveRun, WhatARunMakesNoUseOfIsNotInItsFile) {
  for (const char* word : {"--margin=0.2", "--batch-margin=0.2", "--caution=1", "--dwell=5",
                           "--decide-every=5", "--horizon=2h", "--probe=0.1", "--batch-range=8:64",
                           "--fix=tp=1", "--cluster=1x1xH100-80GB-SXM"}) {
    const std::string key = std::string(word).substr(2, std::string(word).find('=') - 2) + " = ";
    TrainArgs steady, adapting;
    const Result<RunOptions> run = resolve(steady, {word});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_FALSE(contains(run->config, "\n" + key)) << run->config;
    const Result<RunOptions> moving =
        resolve(adapting, {word, "--adapt=batch", "--plan=micro_batch=1"});
    ASSERT_TRUE(moving) << moving.error().message;
    EXPECT_TRUE(contains(moving->config, "\n" + key)) << moving->config;
  }
  for (const char* word : {"--fix=tp=1", "--cluster=1x1xH100-80GB-SXM"}) {
    TrainArgs args;
    const Result<RunOptions> run = resolve(args, {word, "--plan=best"});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_TRUE(contains(run->config, word[2] == 'f' ? "\nfix = " : "\ncluster = "));
  }
}

TEST(ResolveRun, FilesAreNamedAsTheyAreFoundFromEverywhere) {
  const TestFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  folder.write("fix.json", R"({"tp": 1})");
  TrainArgs args;
  const Result<RunOptions> run = resolve(args, {"--adapt=full", "--fix=fix.json"});
  const std::string here = std::filesystem::current_path().string();
  std::filesystem::current_path(before);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(contains(run->config, "fix = \"" + here + "/fix.json\"")) << run->config;
}

}  // namespace
}  // namespace copus
