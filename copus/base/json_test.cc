#include "copus/base/json.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "copus/base/text_testing.h"

namespace copus {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

Json parsed(std::string_view text) {
  Result<Json> json = parse_json(text, "test.json");
  EXPECT_TRUE(json) << json.error().message;
  return json ? *json : Json();
}

std::string parse_failure(std::string_view text) {
  const Result<Json> json = parse_json(text, "test.json");
  if (json) return "parsed";
  EXPECT_EQ(json.error().message.find('\n'), std::string::npos) << "not one line";
  EXPECT_TRUE(json.error().message.starts_with("test.json: ")) << json.error().message;
  return json.error().message;
}

std::string nested(int depth) {
  const auto n = static_cast<std::size_t>(depth);
  return std::string(n, '[') + std::string(n, ']');
}

TEST(ParseJson, KeepsValuesAndTheOrderOfKeys) {
  const std::string text = R"({"z":[1,-2,2.5,true,null],"a":{"b":"text","c":{}},"m":[[],[{}]]})";
  EXPECT_EQ(parsed(text).dump(), text);
}

TEST(ParseJson, TakesAnyValueAtTheTop) {
  EXPECT_EQ(parsed(" 3 "), Json(3));
  EXPECT_EQ(parsed("\"x\""), Json("x"));
}

TEST(ParseJson, KeepsTheWholeRangeOfIntegers) {
  EXPECT_EQ(parsed("18446744073709551615").get<std::uint64_t>(), 18446744073709551615U);
  EXPECT_EQ(parsed("-9223372036854775808").get<std::int64_t>(),
            std::numeric_limits<std::int64_t>::min());
}

TEST(ParseJson, RefusesEmptyText) {
  expect_contains(parse_failure(""), "empty");
  expect_contains(parse_failure(" \n\t "), "empty");
}

TEST(ParseJson, EveryTruncationIsAnErrorAndNeverThrows) {
  const std::string text = R"({"nodes": [1, 2.5e3, "a\u00e9\n"], "deep": {"b": [true, null]}})";
  ASSERT_TRUE(parse_json(text, "test.json"));
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(parse_json(text.substr(0, length), "test.json")) << length;
  }
  expect_contains(parse_failure(R"({"nodes": )"), "unexpected end of input");
}

TEST(ParseJson, NamesTheByteOfASyntaxError) {
  expect_contains(parse_failure(R"({"a": 1,, "b": 2})"), "byte 9");
  expect_contains(parse_failure("[1, 2] x"), "byte 8");
  expect_contains(parse_failure("{'a': 1}"), "byte 2");
  EXPECT_NE(parse_failure("[1] // a comment"), "parsed");
  EXPECT_NE(parse_failure("[1,]"), "parsed");
}

TEST(ParseJson, RefusesADuplicateKeyInOneObjectOnly) {
  expect_contains(parse_failure(R"({"nodes": 1, "gpu": 2, "nodes": 3})"),
                  "nodes: got the key twice");
  expect_contains(parse_failure(R"({"a": {"b": 1, "b": 1}})"), "b: got the key twice");
  EXPECT_EQ(parsed(R"({"a": {"a": 1}, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})").size(), 3U);
}

TEST(ParseJson, RefusesNumbersThatAreNotFinite) {
  expect_contains(parse_failure(R"({"rate": 1e999})"), "1e999");
  expect_contains(parse_failure("[-1e999]"), "-1e999");
  for (const char* literal : {"NaN", "nan", "Infinity", "-Infinity", "inf"}) {
    expect_contains(parse_failure(std::string("{\"rate\": ") + literal + "}"), ": invalid ");
  }
}

TEST(ParseJson, RefusesTextAfterANulByte) {
  using namespace std::string_view_literals;
  expect_contains(parse_failure("{}\0 trailing"sv), "byte 3: got a NUL");
}

TEST(ParseJson, RefusesInvalidUtf8) { EXPECT_NE(parse_failure("\"\xff\xfe\""), "parsed"); }

TEST(ParseJson, AcceptsTheDeepestNestingAndRefusesOneMore) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "test.json"));
  expect_contains(parse_failure(nested(kMaxJsonDepth + 1)), "64 nested levels");
  expect_contains(parse_failure(std::string(1'000'000, '[')), "64 nested levels");
}

TEST(ParseJson, AcceptsTheLargestTextAndRefusesOneByteMore) {
  std::string text(kMaxJsonBytes, ' ');
  text.front() = '1';
  EXPECT_TRUE(parse_json(text, "test.json"));
  text += ' ';
  expect_contains(parse_failure(text), "got 4194305 bytes; want at most 4194304");
}

TEST(ParseJson, ManyKeysCostNoMoreThanTheyShould) {
  // 300,000 keys: looking each up among all earlier ones would take minutes.
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += fmt::format("{}\"{:x}\":1", i == 0 ? "" : ",", i);
  EXPECT_EQ(parsed(text + "}").size(), 300'000U);
}

TEST(ParseJson, ErrorsStayShort) {
  EXPECT_LT(parse_failure('"' + std::string(100'000, 'x')).size(), 400U);
  const std::string key(100'000, 'k');
  EXPECT_LT(parse_failure("{\"" + key + "\":1,\"" + key + "\":1}").size(), 400U);
}

class ReadJsonFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("copus_json_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(ReadJsonFile, ReadsWhatWasWritten) {
  const Result<Json> json = read_json_file(write("a.json", R"({"nodes": 4})"));
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->at("nodes"), 4);
}

TEST_F(ReadJsonFile, NamesTheFileInASyntaxError) {
  const std::string path = write("bad.json", "{");
  expect_contains(read_json_file(path).error().message, path + ": byte");
}

TEST_F(ReadJsonFile, RefusesWhatIsNoFile) {
  expect_contains(read_json_file((folder_ / "none.json").string()).error().message, "no such file");
  expect_contains(read_json_file("").error().message, "no such file");
  expect_contains(read_json_file(folder_.string()).error().message, "got a folder");
  expect_contains(read_json_file("/dev/zero").error().message, "got a device");
  expect_contains(read_json_file(write("a.json", "1") + "/b").error().message, "a.json/b");
  expect_contains(read_json_file(std::string(100'000, 'x')).error().message, "cannot be read");
}

TEST_F(ReadJsonFile, RefusesAnEmptyFile) {
  expect_contains(read_json_file(write("empty.json", "")).error().message, "empty");
}

TEST_F(ReadJsonFile, RefusesAFileThatIsTooLarge) {
  const std::string path = write("large.json", "1");
  std::filesystem::resize_file(path, kMaxJsonBytes + 1);
  expect_contains(read_json_file(path).error().message, "got 4194305 bytes");
}

TEST_F(ReadJsonFile, RefusesAFileItMayNotRead) {
  const std::string path = write("locked.json", "1");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  if (access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read every file";
  expect_contains(read_json_file(path).error().message, "cannot be opened");
}

// The error of reading one field of `text` in the given way; empty when there is none.
template <typename Read>
std::string field_failure(std::string_view text, Read read) {
  const Json json = parsed(text);
  FieldReader fields(json, "cluster.json");
  read(fields);
  const Result<void> done = fields.finish();
  return done ? "" : done.error().message;
}

std::string integer_failure(std::string_view text) {
  return field_failure(text, [](FieldReader& f) { f.integer("nodes", 1, 100); });
}

TEST(FieldReader, ReadsEveryKind) {
  const Json json = parsed(R"({"i": 3, "d": 2.5, "whole": 7, "s": "x", "b": true, "o": {"k": 1}})");
  FieldReader fields(json, "w");
  EXPECT_EQ(fields.integer("i", 0, 10), 3);
  EXPECT_DOUBLE_EQ(fields.number("d", 0, 10), 2.5);
  EXPECT_DOUBLE_EQ(fields.number("whole", 0, 10), 7);
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_TRUE(fields.boolean_or("b", false));
  EXPECT_EQ(fields.child("o").at("k"), 1);
  EXPECT_TRUE(fields.child("none").is_null());
  fields.refuse_unknown();
  EXPECT_TRUE(fields.finish());
}

TEST(FieldReader, AbsentAndNullGiveTheFallback) {
  const Json json = parsed(R"({"i": null, "s": null})");
  FieldReader fields(json, "w");
  EXPECT_FALSE(fields.has("i"));
  EXPECT_EQ(fields.integer_or("i", 5, 0, 1), 5);
  EXPECT_DOUBLE_EQ(fields.number_or("d", 0.5, 0, 1), 0.5);
  EXPECT_EQ(fields.text_or("s", "fallback"), "fallback");
  EXPECT_TRUE(fields.boolean_or("b", true));
  EXPECT_TRUE(fields.finish());
}

TEST(FieldReader, TellsTheFieldBesideTheMessage) {
  const Json json = parsed(R"({"nodes": 0})");
  FieldReader fields(json, "cluster.json");
  fields.integer("nodes", 1, 100);
  EXPECT_EQ(fields.finish().error().field, "nodes");
  FieldReader other(json, "cluster.json");
  other.refuse_unknown();
  EXPECT_EQ(other.finish().error().field, "nodes");
}

TEST(FieldReader, TakesWholeFloatsAsIntegers) {
  EXPECT_EQ(integer_failure(R"({"nodes": 4.0})"), "");
  EXPECT_EQ(integer_failure(R"({"nodes": 1e2})"), "");
}

TEST(FieldReader, IntegerErrorsNameFieldValueAndRange) {
  EXPECT_EQ(integer_failure(R"({"nodes": 0})"),
            "cluster.json: nodes: got 0; want an integer from 1 to 100");
  for (const char* value : {"101", "-1", "2.5", "true", "\"8\"", "[8]", "{}",
                            "18446744073709551615", "1e300", "-9.3e18", "9223372036854775808.0"}) {
    const std::string message = integer_failure(fmt::format("{{\"nodes\": {}}}", value));
    expect_contains(message, "cluster.json: nodes: got ");
    expect_contains(message, "want an integer from 1 to 100");
  }
  expect_contains(integer_failure(R"({"nodes": true})"), "got true");
  expect_contains(integer_failure("{}"), "nodes: missing; want an integer from 1 to 100");
  expect_contains(integer_failure(R"({"nodes": null})"), "nodes: missing");
}

TEST(FieldReader, OpenRangesReadAsSuch) {
  expect_contains(field_failure(R"({"n": 0})", [](FieldReader& f) { f.integer("n", 1, kNoLimit); }),
                  "want an integer of 1 or more");
  expect_contains(field_failure(R"({"n": -1})",
                                [](FieldReader& f) {
                                  f.number("n", 0, std::numeric_limits<double>::infinity());
                                }),
                  "want a number of 0 or more");
}

TEST(FieldReader, OtherKindsNameFieldAndValue) {
  EXPECT_EQ(field_failure(R"({"gain": 2})", [](FieldReader& f) { f.number("gain", 0, 1); }),
            "cluster.json: gain: got 2; want a number from 0 to 1");
  EXPECT_EQ(field_failure(R"({"gain": "1"})", [](FieldReader& f) { f.number_or("gain", 1, 0, 1); }),
            "cluster.json: gain: got \"1\"; want a number from 0 to 1");
  EXPECT_EQ(field_failure("{}", [](FieldReader& f) { f.number("gain", 0, 1); }),
            "cluster.json: gain: missing; want a number from 0 to 1");
  EXPECT_EQ(field_failure(R"({"gpu": 3})", [](FieldReader& f) { f.text("gpu"); }),
            "cluster.json: gpu: got 3; want a string");
  EXPECT_EQ(field_failure("{}", [](FieldReader& f) { f.text("gpu"); }),
            "cluster.json: gpu: missing; want a string");
  EXPECT_EQ(field_failure(R"({"sp": 1})", [](FieldReader& f) { f.boolean_or("sp", false); }),
            "cluster.json: sp: got 1; want true or false");
}

TEST(FieldReader, RefusesWhatIsNoObject) {
  EXPECT_EQ(field_failure("[]", [](FieldReader& f) { f.refuse_unknown(); }),
            "cluster.json: got an empty array; want an object");
  expect_contains(integer_failure("3"), "got 3; want an object");
}

TEST(FieldReader, KeepsTheFirstErrorAndReturnsFallbacksAfterIt) {
  const Json json = parsed(R"({"a": -1, "b": 7, "c": "x"})");
  FieldReader fields(json, "w");
  EXPECT_EQ(fields.integer("a", 1, 9), 1);
  EXPECT_EQ(fields.integer_or("b", 2, 1, 9), 2);
  EXPECT_EQ(fields.text("c"), "");
  fields.fail(make_error("later"));
  fields.refuse_unknown();
  expect_contains(fields.finish().error().message, "w: a: got -1");
}

TEST(FieldReader, AnUnknownKeyNamesTheNearestKnownOne) {
  const auto read = [](FieldReader& f) {
    f.integer_or("nodes", 1, 1, 9);
    f.ignore("gpu");
    f.refuse_unknown();
  };
  EXPECT_EQ(field_failure(R"({"node": 1})", read), "cluster.json: node: unknown field; want nodes");
  EXPECT_EQ(field_failure(R"({"zzzzzz": 1})", read),
            "cluster.json: zzzzzz: unknown field; want nodes or gpu");
  EXPECT_EQ(field_failure(R"({"nodes": 1, "gpu": {}})", read), "");
}

TEST(FieldReader, ValuesAndKeysOfAnyKindStayOnOneShortLine) {
  const std::string message = integer_failure(R"({"nodes": "a\nb\u001b[31m\u00e9"})");
  expect_contains(message, R"(got "a\nb\u001b[31m\u00e9")");
  const std::string unknown =
      field_failure(R"({"a\nb": 1})", [](FieldReader& f) { f.refuse_unknown(); });
  expect_contains(unknown, R"("a\nb": unknown field)");
  EXPECT_LT(integer_failure("{\"nodes\": \"" + std::string(9999, 'x') + "\"}").size(), 200U);
}

}  // namespace
}  // namespace copus
