#include "copus/base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace copus {
namespace {

using Names = std::vector<std::string>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ParseInteger, TakesTheWholeRange) {
  constexpr auto kLow = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHigh = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(parse_integer("42", "n", 0, 100).value(), 42);
  EXPECT_EQ(parse_integer("0", "n", 0, 100).value(), 0);
  EXPECT_EQ(parse_integer("100", "n", 0, 100).value(), 100);
  EXPECT_EQ(parse_integer("-9223372036854775808", "n", kLow, kHigh).value(), kLow);
  EXPECT_EQ(parse_integer("9223372036854775807", "n", kLow, kHigh).value(), kHigh);
}

TEST(ParseInteger, RefusesAnythingButOneDecimalInteger) {
  for (const char* text :
       {"", " 1", "1 ", "+1", "1.0", "1e2", "0x10", "1,000", "--1", "abc", "-"}) {
    EXPECT_FALSE(parse_integer(text, "n", -1000, 1000)) << '"' << text << '"';
  }
}

TEST(ParseInteger, ErrorNamesFieldValueAndRange) {
  EXPECT_EQ(parse_integer("0", "--nodes", 1, 64).error().message,
            "--nodes: got \"0\"; want an integer from 1 to 64");
  EXPECT_EQ(parse_integer("99999999999999999999", "tp", 1, 8).error().message,
            "tp: got \"99999999999999999999\"; want an integer from 1 to 8");
}

TEST(Error, TellsItsFieldBesideTheMessageAndAtItsFront) {
  const Error error = field_error("tp", "got {}; want {}", 3, "a divisor");
  EXPECT_EQ(error.message, "tp: got 3; want a divisor");
  EXPECT_EQ(error.field, "tp");
  EXPECT_EQ(error_in("--plan", error).message, "--plan: tp: got 3; want a divisor");
  EXPECT_EQ(error_in("--plan", error).field, "tp");
  EXPECT_EQ(make_error("tp: got {}", 3).field, "");
  EXPECT_EQ(parse_integer("0", "--nodes", 1, 64).error().field, "--nodes");
}

TEST(ParseInteger, ErrorStaysOnOneShortLine) {
  const std::string message = parse_integer("1\n2\x1b[31m", "n", 1, 2).error().message;
  EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(parse_integer(std::string(9999, '9'), "n", 1, 2).error().message.size(), 200U);
}

TEST(ParseDuration, TakesANumberAndItsUnit) {
  EXPECT_EQ(*parse_duration("90s", "--for"), 90);
  EXPECT_EQ(*parse_duration("10m", "--for"), 600);
  EXPECT_EQ(*parse_duration("1.5h", "--for"), 5400);
  EXPECT_EQ(*parse_duration("2d", "--for"), 172800);
}

TEST(ParseDuration, RefusesANumberWithoutItsUnitAndWhatIsNoTime) {
  const auto error_of = [](std::string_view text) {
    const Result<double> parsed = parse_duration(text, "--for");
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_EQ(error_of("5"), "--for: got 5 without a unit; want 5s, 5m, 5h or 5d");
  EXPECT_EQ(error_of("0.5"), "--for: got 0.5 without a unit; want 0.5s, 0.5m, 0.5h or 0.5d");
  for (const char* text :
       {"", "0", "0s", "s", "-5s", "5x", "5 s", "5ms", "3651d", "nans", "infs"}) {
    EXPECT_EQ(error_of(text), fmt::format("--for: got {}; want a duration such as 90s, 10m, 1.5h "
                                          "or 2d",
                                          text));
  }
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a,b,c", ','), (Parts{"a", "b", "c"}));
  EXPECT_EQ(split(",a,,", ','), (Parts{"", "a", "", ""}));
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split("abc", ','), (Parts{"abc"}));
}

TEST(NearestNames, FindsSlipsOfTheFinger) {
  const Names names = {"llama-3-8b", "llama-3-70b", "gpt2-xl", "mixtral-8x7b"};
  EXPECT_EQ(nearest_names("lama-3-8b", names, 1), Names{"llama-3-8b"});
  EXPECT_EQ(nearest_names("llama-3-7b", names, 1), Names{"llama-3-8b"});
  EXPECT_EQ(nearest_names("gpt2xl", names, 3), Names{"gpt2-xl"});
  EXPECT_EQ(nearest_names("mixtral", names, 3), Names{"mixtral-8x7b"});
}

TEST(NearestNames, IgnoresCase) {
  EXPECT_EQ(nearest_names("h100-80gb", Names{"A100-80GB-SXM", "H100-80GB-SXM"}, 1),
            Names{"H100-80GB-SXM"});
  EXPECT_EQ(nearest_names("GPT2-XL", Names{"gpt2-xl"}), Names{"gpt2-xl"});
}

TEST(NearestNames, FavoursPrefixesThenPartsThenEdits) {
  const Names names = {"mbatch", "xx-micro-yy", "micro_batch_size"};
  EXPECT_EQ(nearest_names("micro", names), (Names{"micro_batch_size", "xx-micro-yy"}));
}

TEST(NearestNames, AnExactNameComesFirst) {
  EXPECT_EQ(nearest_names("tp", Names{"tpx", "tp", "pp"}).front(), "tp");
}

TEST(NearestNames, LeavesOutWhatIsNothingLikeIt) {
  const Names names = {"nodes", "gpu", "pp"};
  EXPECT_TRUE(nearest_names("zzzzzz", names).empty());
  EXPECT_TRUE(nearest_names("", names).empty());
  EXPECT_TRUE(nearest_names(std::string(100'000, 'n'), names).empty());
  EXPECT_TRUE(nearest_names("x", Names{}).empty());
}

TEST(NearestNames, GivesNoMoreThanAskedFor) {
  const Names names = {"node1", "node2", "node3", "node4"};
  EXPECT_EQ(nearest_names("node", names).size(), 3U);
  EXPECT_EQ(nearest_names("node", names, 2), (Names{"node1", "node2"}));
  EXPECT_TRUE(nearest_names("node", names, 0).empty());
}

TEST(JoinOr, ReadsAsASentence) {
  EXPECT_EQ(join_or(Names{}), "");
  EXPECT_EQ(join_or(Names{"a"}), "a");
  EXPECT_EQ(join_or(Names{"a", "b"}), "a or b");
  EXPECT_EQ(join_or(Names{"a", "b", "c"}), "a, b or c");
}

TEST(HumanCount, GivesThreeDigits) {
  EXPECT_EQ(human_count(70553706496.0), "70.6B");
  EXPECT_EQ(human_count(124439808), "124M");
  EXPECT_EQ(human_count(671026419200.0), "671B");
  EXPECT_EQ(human_count(1000576), "1.00M");
  EXPECT_EQ(human_count(1500), "1.50K");
  EXPECT_EQ(human_count(1.8e12), "1.80T");
}

TEST(HumanCount, SmallWholeNumbersStayAsTheyAre) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(7), "7");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(-42), "-42");
  EXPECT_EQ(human_count(2.5), "2.50");
}

TEST(HumanCount, RoundsUpIntoTheNextUnit) {
  EXPECT_EQ(human_count(999'499'999), "999M");
  EXPECT_EQ(human_count(999'600'000), "1.00B");
  EXPECT_EQ(human_count(9'996'000'000), "10.0B");
}

TEST(ShortCount, HasThreeDigitsAndASuffix) {
  EXPECT_EQ(short_count(950), "950");
  EXPECT_EQ(short_count(0.5), "0.50");
  EXPECT_EQ(short_count(999.6), "1.00k");
  EXPECT_EQ(short_count(542'400), "542k");
  EXPECT_EQ(short_count(12'345'678), "12.3M");
}

TEST(ShortTime, HasTheTwoLargestUnits) {
  EXPECT_EQ(short_time(Seconds(0)), "0s");
  EXPECT_EQ(short_time(Seconds(59.7)), "1m00s");
  EXPECT_EQ(short_time(Seconds(3725)), "1h02m");
  EXPECT_EQ(short_time(Seconds(3 * 86400 + 4 * 3600)), "3d04h");
}

TEST(HumanSeconds, PicksTheUnit) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(0.00123), "1.23 ms");
  EXPECT_EQ(human_seconds(12.3), "12.3 s");
  EXPECT_EQ(human_seconds(4e-6), "4.00 us");
  EXPECT_EQ(human_seconds(5e-9), "5.00 ns");
  EXPECT_EQ(human_seconds(119), "119 s");
  EXPECT_EQ(human_seconds(300), "5.00 min");
  EXPECT_EQ(human_seconds(3 * 3600), "3.00 h");
  EXPECT_EQ(human_seconds(54 * 86400.0), "54.0 days");
}

TEST(HumanFigures, SurviveWhatIsNotFinite) {
  EXPECT_EQ(human_seconds(kInfinity), "inf");
  EXPECT_EQ(human_bytes(-kInfinity), "-inf");
  EXPECT_EQ(human_count(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(HumanBytes, PicksTheBinaryUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1.3e9), "1.21 GiB");
  EXPECT_EQ(human_bytes(1024.0 * 1024.0), "1.00 MiB");
  EXPECT_EQ(human_bytes(80.0 * 1024 * 1024 * 1024), "80.0 GiB");
  EXPECT_EQ(human_bytes(-2048), "-2.00 KiB");
}

TEST(Shortened, CutsWholeCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc\u2026");
  EXPECT_EQ(shortened("a\u00b5\u00b5", 2), "a\u2026");
}

TEST(XmlText, IsSafeInAPicture) {
  EXPECT_EQ(xml_text("a<b>&\x01"
                     "c"),
            "a&lt;b&gt;&amp; c");
  EXPECT_EQ(xml_text("\u00b5\u2026\U0001F600"), "\u00b5\u2026\U0001F600");
  EXPECT_EQ(xml_text("\xff\xc3 x"), "?? x");
  EXPECT_EQ(xml_text("\xe2\x82"), "??");  // cut short
}

TEST(FormatTable, AlignsFirstAndMarkedColumnsLeftAndTheRestRight) {
  EXPECT_EQ(
      format_table({"plan", "step", "<note"}, {{"dp2", "1.5 s", "best"}, {"dp4.tp2", "12 s", "x"}}),
      "plan      step  note\n"
      "dp2      1.5 s  best\n"
      "dp4.tp2   12 s  x\n");
}

TEST(FormatTable, RowsMayBeShortAndLinesHaveNoTrailingSpaces) {
  EXPECT_EQ(format_table({"a", "<b"}, {{"x"}, {"y", "long"}}), "a  b\nx\ny  long\n");
}

TEST(FormatTable, CountsCodePointsAsColumns) {
  EXPECT_EQ(format_table({"a", "b"}, {{"\u00b5\u00b5", "1"}, {"xx", "2"}}),
            "a   b\n\u00b5\u00b5  1\nxx  2\n");
}

TEST(FormatTable, DropsColumnsInTheirOrderUntilItFits) {
  const std::vector<std::string> header = {"plan", "step", "MFU", "<bar"};
  const std::vector<std::vector<std::string>> rows = {{"dp2", "1.5 s", "40%", "CCCCCCCC"}};
  const std::string whole = format_table(header, rows);
  for (std::size_t width = 1; width < 40; ++width) {
    std::vector<std::string> dropped;
    const std::string table = format_table(header, rows, width, {"<bar", "MFU"}, &dropped);
    const std::vector<std::string> wanted = width >= 26   ? std::vector<std::string>{}
                                            : width >= 16 ? std::vector<std::string>{"<bar"}
                                                          : std::vector<std::string>{"<bar", "MFU"};
    EXPECT_EQ(dropped, wanted) << width;
    // Both lines end at the last column that is left.
    EXPECT_EQ(table, dropped.empty()       ? whole
                     : dropped.size() == 1 ? "plan   step  MFU\ndp2   1.5 s  40%\n"
                                           : "plan   step\ndp2   1.5 s\n")
        << width;
  }
}

TEST(Counted, OneThingHasNoPlural) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(2, "source"), "2 sources");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
}

TEST(FormatTable, TakesNothing) { EXPECT_EQ(format_table({}, {}), "\n"); }

}  // namespace
}  // namespace copus
