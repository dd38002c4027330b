#include "copus/args/config_file.h"

#include <gtest/gtest.h>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

struct FileArgs : OptionGroup {
  Option<std::int64_t> batch{this, "--global-batch", integer(1, 99), "sequences per step", 32};
  Option<std::vector<std::string>> data{this, "--data", list_of(text("FILE")), "files"};
  Option<double> lr{this, "--lr", number(0, 1), "peak", 0.5};
  OptionGroup inner{this, "Inner"};
  Option<Seconds> time{&inner, "--for", duration(), "time"};
  Option<bool> other{&inner, "--other-data", flag(), "others", false, InFile::kRead};
  Option<bool> json{this, "--json", flag(), "print JSON", false, InFile::kNo};
};

Result<void> read_text(FileArgs& args, const std::string& text, From from = From::kConfig,
                       const ConfigRules& rules = {}) {
  const TestFolder folder;
  Result<void> read = read_config(args, folder.write("a.toml", text), from, rules);
  if (read) return read;
  // Leave out the folder, whose name differs from test to test.
  return Error{read.error().message.substr(folder.path().size() + 1), read.error().field};
}

TEST(ConfigFile, KeysAreTheOptionsNames) {
  FileArgs args;
  ASSERT_TRUE(read_text(args,
                        "global_batch = 8\ndata = [\"a\", \"b\"]\nlr = 1e-3\nfor = \"10m\"\n"
                        "other-data = true\n"));
  EXPECT_EQ(*args.batch, 8);
  EXPECT_EQ(*args.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*args.lr, 1e-3);
  EXPECT_EQ(*args.time, Seconds(600));
  EXPECT_TRUE(*args.other);
  EXPECT_EQ(args.batch.from(), From::kConfig);
}

TEST(ConfigFile, TheCommandLineWinsAndThenTheFileThatCameFirst) {
  FileArgs args;
  args.batch.set(4, From::kCommandLine);
  ASSERT_TRUE(read_text(args, "global-batch = 8\nlr = 0.25\n"));
  ASSERT_TRUE(read_text(args, "global-batch = 9\nlr = 0.125\nfor = \"1m\"\n", From::kRun));
  EXPECT_EQ(*args.batch, 4);
  EXPECT_EQ(*args.lr, 0.25);
  EXPECT_EQ(*args.time, Seconds(60));
  EXPECT_EQ(args.time.from(), From::kRun);
}

TEST(ConfigFile, WhatIsWrongIsNamedWithTheFileAndTheKey) {
  FileArgs args;
  const auto error_of = [&](const std::string& text) {
    return read_text(args, text).error().message;
  };
  EXPECT_EQ(error_of("global_batch = \"many\"\n"),
            "a.toml: global_batch: got \"many\"; want an integer from 1 to 99");
  EXPECT_EQ(error_of("global-bach = 1\n"),
            "a.toml: global-bach: unknown option; want global-batch");
  EXPECT_EQ(error_of("json = true\n"),
            "a.toml: json: unknown option; want global-batch, data, lr, for or other-data");
  EXPECT_EQ(error_of("global-batch = 1\nglobal_batch = 1\n"),
            "a.toml: global_batch: got it twice; want it once");
  EXPECT_EQ(error_of("lr = [0.5, 0.25]\n"), "a.toml: lr: got 2 values; want one");
  EXPECT_EQ(error_of("data = []\n"), "a.toml: data: got an empty list; want a value");
  EXPECT_EQ(error_of("data = \"\"\n"), "a.toml: data: got an empty value");
  EXPECT_EQ(error_of("[lr]\nn = 1\n"),
            "a.toml: lr: got a table or a date; want a string, a number, true, false or a list of "
            "these");
  EXPECT_TRUE(error_of("lr = = 1\n").starts_with("a.toml:1:6: "));
}

TEST(ConfigFile, AFolderIsNoEmptyFile) {
  FileArgs args;
  const TestFolder folder;
  const Result<void> read = read_config(args, folder.path(), From::kConfig);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, folder.path() + ": got a folder; want a TOML file");
}

TEST(ConfigFile, ATableOfTheCommandsOwnWinsAndOthersKeysAreNoError) {
  FileArgs args;
  std::vector<std::string> others;
  const std::string text = "lr = 0.25\nsteps = 3\n[compare]\nlr = 0.125\n";
  ASSERT_TRUE(read_text(args, text, From::kConfig,
                        {.own_table = "compare", .except = {}, .others = &others}));
  EXPECT_EQ(*args.lr, 0.125);
  EXPECT_EQ(others, std::vector<std::string>{"steps"});
  // Another command ignores the table.
  FileArgs another;
  ASSERT_TRUE(read_text(another, "lr = 0.25\n[compare]\nlr = 0.125\n"));
  EXPECT_EQ(*another.lr, 0.25);
}

TEST(ConfigFile, WhatIsWrittenReadsTheSame) {
  FileArgs args, again;
  args.batch.set(8, From::kCommandLine);
  args.data.set({"with \"quotes\"", "back\\slash", "tab\t", "größe"}, From::kCommandLine);
  args.time.set(Seconds(90), From::kCommandLine);
  args.other.set(true, From::kCommandLine);
  const std::string text = to_toml(args);
  EXPECT_EQ(text,
            "global-batch = 8\n"
            "data = [\"with \\\"quotes\\\"\",\"back\\\\slash\",\"tab\\t\",\"größe\"]\n"
            "lr = 0.5\n"
            "for = \"90s\"\n");
  ASSERT_TRUE(read_text(again, text));
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(*again.data, *args.data);
}

TEST(ConfigFile, TheKeyIsToldBesideTheMessageOfAnError) {
  FileArgs args;
  for (const char* text : {"lr = 9\n", "lr = []\n", "[lr]\nn = 1\n"}) {
    EXPECT_EQ(read_text(args, text).error().field, "lr") << text;
  }
  EXPECT_EQ(read_text(args, "nothing = 1\n").error().field, "nothing");
  EXPECT_EQ(read_text(args, "global-batch = 1\nglobal_batch = 1\n").error().field, "global_batch");
}

TEST(ConfigFile, ARunsOwnFileMayHaveATimeWithoutAUnit) {
  for (const char* text : {"for = \"300\"\n", "for = 300\n", "for = 300.0\n"}) {
    FileArgs args;
    ASSERT_TRUE(read_text(args, text, From::kRun)) << text;
    EXPECT_EQ(*args.time, Seconds(300)) << text;
    FileArgs others;
    EXPECT_EQ(read_text(others, text, From::kConfig).error().message,
              "a.toml: for: got 300 without a unit; want 300s, 300m, 300h or 300d");
  }
  FileArgs args;
  EXPECT_EQ(read_text(args, "for = \"soon\"\n", From::kRun).error().message,
            "a.toml: for: got soon; want a duration such as 90s, 10m, 1.5h or 2d");
}

}  // namespace
}  // namespace copus
