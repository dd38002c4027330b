#include "copus/base/csv.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace copus {
namespace {

using Cells = std::vector<std::string>;

CsvTable table_of(const std::string& text) {
  Result<CsvTable> table = parse_csv(text, "t.csv");
  EXPECT_TRUE(table) << table.error().message;
  return table ? *table : CsvTable{};
}

std::string error_of(const std::string& text) {
  const Result<CsvTable> table = parse_csv(text, "t.csv");
  return table ? "" : table.error().message;
}

TEST(Csv, RowsKeepTheirCellsAndLines) {
  const CsvTable table = table_of("a,b\n1,2\n\n,\n");
  EXPECT_EQ(table.columns, (Cells{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].cells, (Cells{"1", "2"}));
  EXPECT_EQ(table.rows[0].line, 2U);
  EXPECT_EQ(table.rows[1].cells, (Cells{"", ""}));
  EXPECT_EQ(table.rows[1].line, 4U);
}

TEST(Csv, TheLastLineNeedsNoEnd) {
  EXPECT_EQ(table_of("a,b\n1,2").rows[0].cells, (Cells{"1", "2"}));
  EXPECT_EQ(table_of("a,b\n1,").rows[0].cells, (Cells{"1", ""}));
  EXPECT_TRUE(table_of("a,b").rows.empty());
}

TEST(Csv, QuotesHoldCommasQuotesAndLines) {
  const CsvTable table = table_of("a,b\n\"x,y\",\"say \"\"hi\"\"\"\n\"two\nlines\",\"\"\nlast,1\n");
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.rows[0].cells, (Cells{"x,y", "say \"hi\""}));
  EXPECT_EQ(table.rows[1].cells, (Cells{"two\nlines", ""}));
  EXPECT_EQ(table.rows[2].line, 5U);
}

TEST(Csv, TakesWindowsLinesAndAByteOrderMark) {
  const CsvTable table = table_of(
      "\xef\xbb\xbf"
      "a,b\r\n1,2\r\n\r\n\"3\",4\r\n");
  EXPECT_EQ(table.columns, (Cells{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].cells, (Cells{"1", "2"}));
  EXPECT_EQ(table.rows[1].cells, (Cells{"3", "4"}));
  EXPECT_EQ(table.rows[1].line, 4U);
}

TEST(Csv, PassesOverComments) {
  const CsvTable table = table_of("# made by hand\na,b\n#1,2\n3,#4\n\"#5\",6\n# end");
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].cells, (Cells{"3", "#4"}));
  EXPECT_EQ(table.rows[0].line, 4U);
  EXPECT_EQ(table.rows[1].cells, (Cells{"#5", "6"}));
}

TEST(Csv, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a,b\n1,2\n3\n"), "t.csv: line 3: got 1 cells; want 2, one per column");
  EXPECT_EQ(error_of("a,b\n1,2,3\n"), "t.csv: line 2: got 3 cells; want 2, one per column");
  EXPECT_EQ(error_of("# c\na,b,a\n"), "t.csv: line 2: got column \"a\" twice; want it once");
  EXPECT_EQ(error_of("a\n1\n\"x\ny\n"), "t.csv: line 3: got a quote that is never closed");
  EXPECT_EQ(error_of("a,b\n\"x\"y,1\n"),
            "t.csv: line 2: got text after a cell; want a comma or the end of the line");
}

TEST(Csv, ALineEndOfAnOldMacIsNone) {
  EXPECT_EQ(error_of("a\rb\n1\n"),
            "t.csv: line 1: got text after a cell; want a comma or the end of the line");
}

TEST(Csv, NothingIsNoTable) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "\xef\xbb\xbf"}) {
    EXPECT_EQ(error_of(text), "t.csv: got no line; want a first line that names the columns");
  }
}

TEST(Csv, WhatIsPrintedIsReadBack) {
  const std::vector<Cells> rows = {{"a", "b", "c"},
                                   {"", "", ""},
                                   {"x,y", "\"", "\"\""},
                                   {"#no comment", "two\nlines", "\r\n"},
                                   {" spaces ", "\u00b5", "last"}};
  std::string text;
  for (const Cells& row : rows) text += csv_line(row);
  const CsvTable table = table_of(text);
  EXPECT_EQ(table.columns, rows[0]);
  ASSERT_EQ(table.rows.size(), rows.size() - 1);
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_EQ(table.rows[i - 1].cells, rows[i]);
}

TEST(Csv, ALoneEmptyCellIsARow) {
  const CsvTable table = table_of("a\n" + csv_line(Cells{""}));
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].cells, Cells{""});
}

TEST(Csv, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(csv_line(Cells{"a", "b c", "1.5"}), "a,b c,1.5\n");
  EXPECT_EQ(csv_line(Cells{"a,b", "say \"x\""}), "\"a,b\",\"say \"\"x\"\"\"\n");
}

TEST(Csv, FilesThatCannotBeReadAreErrors) {
  const std::filesystem::path folder = testing::TempDir();
  const auto expect_error = [](const std::string& path, const std::string& why) {
    const Result<CsvTable> table = read_csv_file(path);
    ASSERT_FALSE(table);
    EXPECT_EQ(table.error().message, path + ": " + why);
  };
  expect_error((folder / "no_such_file.csv").string(), "no such file; want a CSV file");
  expect_error(folder.string(), "got a folder; want a CSV file");
  expect_error("/dev/zero", "got a device, pipe or socket; want a regular CSV file");
}

TEST(Csv, ReadsAFile) {
  const std::string path = testing::TempDir() + "csv_test.csv";
  std::ofstream(path) << "a,b\n1,2\n";
  const Result<CsvTable> table = read_csv_file(path);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->rows.size(), 1U);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace copus
