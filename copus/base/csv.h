// Comma-separated values: cells by column name, with quotes as in RFC 4180.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"

namespace copus {

struct CsvTable {
  struct Row {
    std::size_t line = 0;  // where it begins in the file, from 1
    std::vector<std::string> cells;
  };
  std::vector<std::string> columns;
  std::vector<Row> rows;
};

constexpr std::size_t kMaxCsvBytes = std::size_t{256} * 1024 * 1024;

// The first line that is neither empty nor a comment (#) names the columns. A row with more or
// fewer cells, a column named twice and an open quote are errors that name the line.
Result<CsvTable> parse_csv(std::string_view text, std::string_view where);
Result<CsvTable> read_csv_file(const std::string& path);

// One line with its newline. Cells are quoted where necessary.
std::string csv_line(std::span<const std::string> cells);

}  // namespace copus
