#include "copus/args/values.h"

#include <gtest/gtest.h>

#include <random>

namespace copus {
namespace {

enum class Color { kRed, kGreen };
std::string_view to_string(Color color) { return color == Color::kRed ? "red" : "green"; }
constexpr std::array kColors = {Color::kRed, Color::kGreen};

template <typename T>
void expect_same_when_written_and_read(const Values<T>& values, const T& value) {
  const Json json = values.write(value);
  const Result<T> again = values.read(spelled(json), "--x");
  ASSERT_TRUE(again) << json.dump() << ": " << again.error().message;
  EXPECT_EQ(*again, value) << json.dump();
}

TEST(Values, AreTheSameWhenWrittenAndReadAgain) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto n = static_cast<std::int64_t>(random() % 1'000'000'000'000);
    expect_same_when_written_and_read(integer(0, 1'000'000'000'000), n);
    const double x = std::uniform_real_distribution<double>(-30, 30)(random);
    expect_same_when_written_and_read(number(0, 1e30), std::exp(x));
    const auto seconds = static_cast<double>(1 + random() % 1'000'000);
    expect_same_when_written_and_read(duration(), Seconds(seconds));
    expect_same_when_written_and_read(duration(), Seconds(std::exp(x / 2)));
    expect_same_when_written_and_read(list_of(number(0, 1e30)), {std::exp(x), x * x, 0.0});
  }
  for (const bool on : {false, true}) expect_same_when_written_and_read(flag(), on);
  for (const Color color : kColors) expect_same_when_written_and_read(one_of(kColors), color);
  for (const char* each : {"a", "a b", "-", "\"quoted\"", "tp=2,pp=1"}) {
    expect_same_when_written_and_read<std::string>(text("FILE"), each);
  }
}

TEST(Values, DurationsAreWrittenInTheLargestWholeUnit) {
  EXPECT_EQ(duration_text(Seconds(300)), "5m");
  EXPECT_EQ(duration_text(Seconds(90)), "90s");
  EXPECT_EQ(duration_text(Seconds(7200)), "2h");
  EXPECT_EQ(duration_text(Seconds(86400)), "1d");
  EXPECT_EQ(duration_text(Seconds(0.5)), "0.5s");
}

TEST(Values, WhatIsNoneIsRefusedWithWhatWouldBe) {
  EXPECT_EQ(one_of(kColors).read({"blue"}, "--color").error().message,
            "--color: got blue; want red or green");
  EXPECT_EQ(text("FILE").read({""}, "--out").error().message, "--out: got an empty value");
  EXPECT_EQ(duration(Seconds(86400), "a day at most").read({"2d"}, "--grace").error().message,
            "--grace: got 2d; want a day at most");
  EXPECT_EQ(flag().read({"yes"}, "--json").error().message, "--json: got yes; want true or false");
  EXPECT_EQ(list_of(number(0, 1)).read({"0.5", "2"}, "--x").error().message,
            "--x: got 2; want a number from 0 to 1");
}

TEST(Values, ShowWhatTheyAre) {
  EXPECT_EQ(one_of(kColors).form.placeholder, "red|green");
  EXPECT_EQ(integer(1, 9).form.range, "1 to 9");
  EXPECT_TRUE(list_of(text("FILE")).form.is_list);
  EXPECT_EQ(or_bare(integer(1, 9), "1").form.bare, "1");
  EXPECT_TRUE(flag().form.placeholder.empty());
}

}  // namespace
}  // namespace copus
