#include "copus/interop/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "copus/base/checksum.h"
#include "copus/base/json.h"
#include "copus/base/test_folder.h"

namespace copus {
namespace {

std::string with_length(const std::string& header, std::uint64_t length) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xffU);
  return file + header;
}

Result<SafetensorsHeader> parse(const std::string& header, std::int64_t data_bytes) {
  const std::string file = with_length(header, header.size());
  return parse_safetensors_header(file, static_cast<std::int64_t>(file.size()) + data_bytes, "f");
}

std::string why_not(const std::string& header, std::int64_t data_bytes) {
  const Result<SafetensorsHeader> parsed = parse(header, data_bytes);
  return parsed ? "" : parsed.error().message;
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TestFolder folder;
  const std::vector<float> first{1, 2, 3, 4, 5, 6}, second{7, 8};
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder.path("a"),
                                                               {{.name = "x", .shape = {2, 3}},
                                                                {.name = "none", .shape = {0, 4}},
                                                                {.name = "y\"\n", .shape = {2}}},
                                                               {{"format", "pt"}});
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  ASSERT_TRUE(writer->write(bytes_of(first).first(5)));  // a call may end inside a float
  ASSERT_TRUE(writer->write(bytes_of(first).subspan(5)));
  ASSERT_TRUE(writer->write(bytes_of(second)));
  const Result<SafetensorsWriter::Written> written = writer->finish();
  ASSERT_TRUE(written.has_value());
  const std::string all = folder.read("a");
  EXPECT_EQ(written->bytes, static_cast<std::int64_t>(all.size()));
  EXPECT_EQ(written->xxh3, xxh3_of(all));

  const Result<SafetensorsFile> file = SafetensorsFile::open(folder.path("a"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  EXPECT_EQ(file->header().data_begin % 8, 0);
  EXPECT_EQ(file->header().arrays.size(), 3U);
  const SafetensorsArray* x = file->header().find("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> read(2);
  ASSERT_TRUE(file->read(*x, 12, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, (std::vector<float>{4, 5}));
  EXPECT_FALSE(file->read(*x, 20, std::as_writable_bytes(std::span(read))));
  EXPECT_FALSE(file->read(*x, -4, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(file->header().find("z"), nullptr);
}

TEST(Safetensors, UnfinishedFileIsNotLeftBehind) {
  const TestFolder folder;
  {
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::create(folder.path("a"), {{.name = "x", .shape = {2}}}, {});
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->write(bytes_of({1})));
    EXPECT_FALSE(writer->finish().has_value());
    EXPECT_FALSE(writer->write(bytes_of({1, 2})));
  }
  EXPECT_TRUE(folder.names().empty());
  EXPECT_FALSE(SafetensorsWriter::create(
      folder.path("a"), {{.name = "x", .shape = {1}}, {.name = "x", .shape = {1}}}, {}));
  EXPECT_FALSE(SafetensorsWriter::create(folder.path("no/a"), {{.name = "x", .shape = {1}}}, {}));
}

TEST(Safetensors, HeaderThatLiesIsRefused) {
  const std::string one = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(why_not(one, 8), "");
  EXPECT_EQ(why_not("{}", 0), "");
  struct Case {
    std::string header;
    std::int64_t data_bytes;
    std::string says;
  };
  const auto array = [](const char* name, const char* dtype, const char* shape, const char* range) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                       range);
  };
  const auto of = [&](const char* dtype, const char* shape, const char* range) {
    return fmt::format("{{{}}}", array("x", dtype, shape, range));
  };
  const std::string a = array("a", "U8", "[4]", "[0,4]");
  const auto both = [&](const std::string& b) { return fmt::format("{{{},{}}}", a, b); };
  for (const Case& c : std::vector<Case>{
           {one, 7, "has 7 bytes of data; want 8"},
           {one, 9, "has 9 bytes of data; want 8"},
           {of("F32", "[2]", "[8,16]"), 16, "begins at byte 8"},
           {of("F32", "[2]", "[8,0]"), 8, "data_offsets"},
           {of("F32", "[2]", "[-8,0]"), 8, "data_offsets"},
           {of("F32", "[2]", "[0,18446744073709551615]"), 8, "data_offsets"},
           {of("F32", "[2]", "[0,8.0]"), 8, "data_offsets"},
           {of("F32", "[2]", "[0]"), 8, "data_offsets"},
           {of("F32", "[2]", "null"), 8, "data_offsets"},
           {of("F32", "[3]", "[0,8]"), 8, "got 8 bytes; want 12"},
           {of("F32", "[-2]", "[0,8]"), 8, "shape"},
           {of("F32", "[1.5]", "[0,8]"), 8, "shape"},
           {of("F32", "2", "[0,8]"), 8, "shape"},
           {of("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "17 sizes"},
           {of("F32", "[4611686018427387904,4611686018427387904]", "[0,0]"), 0, "more bytes"},
           {of("F32", "[9223372036854775807]", "[0,9223372036854775807]"), 8, "more bytes"},
           {of("F33", "[2]", "[0,8]"), 8, "dtype"},
           {both(array("b", "U8", "[4]", "[2,6]")), 6, "begins at byte 2"},
           {both(array("b", "U8", "[4]", "[6,10]")), 10, "begins at byte 6"},
           {both(array("b", "U8", "[4]", "[0,4]")), 4, "begins at byte 0"},
           {both(a), 4, "twice"},
           {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8, "more"},
           {R"({"x":3})", 8, "x"},
           {R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
           {R"({"__metadata__":[]})", 0, "__metadata__"},
           {"[]", 0, "object"},
           {"", 0, "empty"},
           {"{", 0, "header"}}) {
    EXPECT_TRUE(contains(why_not(c.header, c.data_bytes), c.says))
        << c.header << "\n"
        << why_not(c.header, c.data_bytes);
  }
}

TEST(Safetensors, LengthsPastTheEndAreRefused) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100}, std::uint64_t{kMaxJsonBytes} + 1,
        std::uint64_t{1} << 32U, std::uint64_t{1} << 63U, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    const std::string file = with_length("{}", length);
    const auto size = static_cast<std::int64_t>(file.size());
    EXPECT_FALSE(parse_safetensors_header(file, size, "f").has_value()) << length;
    // The same if the file is large enough by `file_bytes`, but only its beginning is given.
    EXPECT_FALSE(parse_safetensors_header(file, std::int64_t{1} << 62, "f").has_value()) << length;
  }
  for (std::size_t size = 0; size < 10; ++size) {
    const std::string file = with_length("{}", 2).substr(0, size);
    EXPECT_FALSE(parse_safetensors_header(file, static_cast<std::int64_t>(size), "f").has_value());
  }
}

// A damaged header must give an error, or arrays that cover each byte of the data once.
TEST(Safetensors, NoDamageToAHeaderIsTakenForData) {
  std::vector<SafetensorsArray> arrays{{.name = "weight/a/0.4.0.12", .shape = {12}},
                                       {.name = "b", .dtype = "BF16", .shape = {3, 2}},
                                       {.name = "c", .dtype = "U8", .shape = {}}};
  const Result<std::string> printed = print_safetensors_header(arrays, {{"k", "v"}}, "f");
  ASSERT_TRUE(printed.has_value());
  const std::int64_t data = arrays.back().end;
  std::mt19937 random(3);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string file = *printed;
    for (std::size_t damage = 1 + below(3); damage-- > 0;) {
      switch (below(3)) {
        case 0:
          file[below(file.size())] ^= static_cast<char>(1U << below(8));
          break;
        case 1:
          file[below(file.size())] = "0123456789[]{},:\"-e"[below(19)];
          break;
        default:
          file.erase(8 + below(file.size() - 8), 1 + below(3));
      }
    }
    const std::int64_t bytes = static_cast<std::int64_t>(file.size()) + data;
    const Result<SafetensorsHeader> parsed = parse_safetensors_header(file, bytes, "f");
    if (!parsed) {
      ++refused;
      continue;
    }
    std::int64_t end = 0;
    for (const SafetensorsArray& array : parsed->arrays) {
      ASSERT_EQ(array.begin, end);
      end = array.end;
    }
    ASSERT_EQ(parsed->data_begin + end, bytes);
  }
  EXPECT_GT(refused, 10000);
}

TEST(Safetensors, WhatIsNoFileIsAnError) {
  const TestFolder folder;
  for (const std::string& path : {folder.path("none"), folder.path(""), folder.write("empty", ""),
                                  folder.write("short", "abc")}) {
    EXPECT_FALSE(SafetensorsFile::open(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace copus
