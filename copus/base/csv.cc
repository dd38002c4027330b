#include "copus/base/csv.h"

#include <algorithm>

#include "copus/base/whole_file.h"

namespace copus {
namespace {

// Reads one record after the other.
class Records {
 public:
  Records(std::string_view text, std::string_view where) : rest_(text), where_(where) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  // Returns false at the end of the text. Skips empty lines and comments.
  Result<bool> next(CsvTable::Row& row) {
    while (!rest_.empty() && (rest_[0] == '#' || rest_[0] == '\n' || rest_.starts_with("\r\n"))) {
      const std::size_t end = rest_.find('\n');
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      ++line_;
    }
    if (rest_.empty()) return false;
    row.line = line_;
    row.cells.clear();
    for (bool more = true; more;) {
      COPUS_TRY(row.cells.emplace_back(), rest_.starts_with('"') ? quoted() : plain());
      more = rest_.starts_with(',');
      if (more) rest_.remove_prefix(1);
    }
    if (rest_.starts_with('\r')) rest_.remove_prefix(1);
    if (!rest_.empty() && rest_[0] != '\n') {
      return make_error("{}: line {}: got text after a cell; want a comma or the end of the line",
                        where_, line_);
    }
    if (!rest_.empty()) rest_.remove_prefix(1);
    ++line_;
    return true;
  }

 private:
  Result<std::string> plain() {
    const std::size_t end = std::min(rest_.find_first_of(",\r\n"), rest_.size());
    std::string cell(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return cell;
  }
  Result<std::string> quoted() {
    const std::size_t begin_line = line_;
    rest_.remove_prefix(1);
    std::string cell;
    while (true) {
      const std::size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) {
        return make_error("{}: line {}: got a quote that is never closed", where_, begin_line);
      }
      line_ += static_cast<std::size_t>(std::count(rest_.begin(), rest_.begin() + quote, '\n'));
      cell += rest_.substr(0, quote);
      rest_.remove_prefix(quote + 1);
      if (!rest_.starts_with('"')) return cell;
      cell += '"';
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
  std::string_view where_;
  std::size_t line_ = 1;
};

}  // namespace

Result<CsvTable> parse_csv(std::string_view text, std::string_view where) {
  Records records(text, where);
  CsvTable table;
  CsvTable::Row row;
  COPUS_TRY(const bool any, records.next(row));
  if (!any) return make_error("{}: got no line; want a first line that names the columns", where);
  table.columns = row.cells;
  for (const std::string& column : table.columns) {
    if (std::count(table.columns.begin(), table.columns.end(), column) > 1) {
      return make_error("{}: line {}: got column {:?} twice; want it once", where, row.line,
                        column);
    }
  }
  while (true) {
    COPUS_TRY(const bool more, records.next(row));
    if (!more) return table;
    if (row.cells.size() != table.columns.size()) {
      return make_error("{}: line {}: got {} cells; want {}, one per column", where, row.line,
                        row.cells.size(), table.columns.size());
    }
    table.rows.push_back(row);
  }
}

Result<CsvTable> read_csv_file(const std::string& path) {
  COPUS_TRY(const std::string text, read_whole_file(path, "CSV", kMaxCsvBytes));
  return parse_csv(text, path);
}

std::string csv_line(std::span<const std::string> cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != cells.data()) line += ',';
    // A row of one empty cell is quoted: readers would skip an empty line.
    const bool is_lost = cells.size() == 1 && cell.empty();
    if (cell.find_first_of(",\"\r\n") == std::string::npos && !cell.starts_with('#') && !is_lost) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) {
      line += c;
      if (c == '"') line += '"';
    }
    line += '"';
  }
  return line + '\n';
}

}  // namespace copus
