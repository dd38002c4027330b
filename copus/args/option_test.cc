#include "copus/args/option.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

struct InnerArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<double> lr{this, "--lr", number(0, 100), "peak learning rate", 3e-4};
  Option<double> floor{
      this, "--min-lr", number(0, 100), "lowest", Otherwise{"a tenth of --lr"}, InFile::kGiven};
};

struct Args : OptionGroup {
  Option<std::int64_t> seed{this, "--seed", integer(0, 9), "of the weights", 1};
  InnerArgs inner{this, "The optimizer"};
  Option<std::vector<std::string>> data{this, "--data", list_of(text("FILE")), "what to train on"};
  Option<bool> json{this, "--json", flag(), "print JSON", false, InFile::kNo};
};

TEST(Option, HasItsDefaultUntilItIsGiven) {
  Args args;
  EXPECT_EQ(*args.seed, 1);
  EXPECT_FALSE(args.seed.given());
  ASSERT_TRUE(args.seed.read({"7"}, From::kCommandLine, "--seed"));
  EXPECT_EQ(*args.seed, 7);
  EXPECT_EQ(args.seed.from(), From::kCommandLine);
  args.seed.forget();
  EXPECT_EQ(*args.seed, 1);
  EXPECT_FALSE(args.seed.given());
}

TEST(Option, RefusesWhatIsNoValueAndKeepsTheOneItHas) {
  Args args;
  EXPECT_EQ(args.seed.read({"10"}, From::kConfig, "a.toml: seed").error().message,
            "a.toml: seed: got \"10\"; want an integer from 0 to 9");
  EXPECT_EQ(*args.seed, 1);
  EXPECT_FALSE(args.seed.given());
  EXPECT_EQ(args.seed.read({"1", "2"}, From::kConfig, "--seed").error().message,
            "--seed: got 2 values; want one");
}

TEST(Option, TakesADefaultThatFollowsFromOthersOnlyWhereItIsNotGiven) {
  Args args;
  EXPECT_FALSE(args.inner.floor.known());
  args.inner.floor.set_default(3e-5);
  EXPECT_EQ(*args.inner.floor, 3e-5);
  EXPECT_FALSE(args.inner.floor.given());
  ASSERT_TRUE(args.inner.floor.read({"1e-6"}, From::kRun, "--min-lr"));
  args.inner.floor.set_default(1);
  EXPECT_EQ(*args.inner.floor, 1e-6);
}

TEST(Option, IsWrittenWhereItsStatementSaysSo) {
  Args args;
  EXPECT_EQ(args.seed.written(), Json(1));
  EXPECT_EQ(args.inner.floor.written(), std::nullopt);
  args.inner.floor.set_default(3e-5);
  EXPECT_EQ(args.inner.floor.written(), std::nullopt) << "a written default ignores a new --lr";
  args.inner.floor.set(1e-6, From::kCommandLine);
  EXPECT_EQ(args.inner.floor.written(), Json(1e-6));
  EXPECT_EQ(args.json.written(), std::nullopt);
  EXPECT_EQ(args.data.written(), std::nullopt) << "it has no value";
  args.seed.write_as(2);
  EXPECT_EQ(args.seed.written(), Json(2));
  EXPECT_EQ(*args.seed, 1);
  args.seed.leave_out_of_file();
  EXPECT_EQ(args.seed.written(), std::nullopt);
}

TEST(OptionGroup, HoldsTheOptionsOfThoseInItInTheirOrder) {
  const Args args;
  std::vector<std::string> names;
  for (const AnyOption* each : args.options()) names.push_back(each->name());
  EXPECT_EQ(names, (std::vector<std::string>{"seed", "lr", "min-lr", "data", "json"}));
  EXPECT_EQ(args.find("lr")->title(), "The optimizer");
  EXPECT_EQ(args.inner.options().size(), 2U);
  EXPECT_EQ(args.find("nothing"), nullptr);
}

TEST(OptionGroup, SpellsWhatWasGivenAsACommandLine) {
  Args args;
  args.seed.set(3, From::kConfig);
  args.data.set({"a b.txt", "c.txt"}, From::kCommandLine);
  args.json.set(true, From::kCommandLine);
  EXPECT_EQ(command_words(args, From::kCommandLine),
            (std::vector<std::string>{"--data=a b.txt", "--data=c.txt", "--json"}));
  EXPECT_EQ(command_words(args, From::kConfig).front(), "--seed=3");
}

}  // namespace
}  // namespace copus
