#include "base/tables/csv.h"

#include <algorithm>
#include <limits>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/csv_rows.h"
#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

using Row = std::vector<std::string>;

class CsvFile {
 public:
  explicit CsvFile(const std::string& path)
      : path_(path), file_(path), rows_(file_.text(), {.text_after_quotes = true}) {}

  // Returns false after the last row.
  bool next(Row& row) {
    const auto status = rows_.next(row);
    if (status == CsvParser::CsvRowStatus::unclosed_quote)
      bad_input("{}: a quote is opened and not closed", where());
    return status == CsvParser::CsvRowStatus::row;
  }

  Row header() {
    Row names;
    if (!next(names)) bad_input("{}: is empty; expected a row of column names", path_);
    return names;
  }

  std::string where() const { return fmt::format("{}: row {}", path_, rows_.row_number()); }

 private:
  const std::string& path_;
  MappedFile file_;
  CsvParser rows_;
};

double parse_real(const std::string& text, const std::string& where) {
  if (text.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto value = parse_number<double>(text);
  if (!value) bad_input("{}: found {}, expected a number", where, quote_text(text));
  return *value;
}

std::int64_t parse_boolean(const std::string& text, const std::string& where) {
  if (text != "true" && text != "false")
    bad_input("{}: found {}, expected true or false", where, quote_text(text));
  return text == "true" ? 1 : 0;
}

void append_csv_value(Table::Column& column, const std::string& field, const std::string& where) {
  if (column.type == Table::Type::text)
    column.texts.push_back(field);
  else if (column.type == Table::Type::real)
    column.reals.push_back(parse_real(field, where));
  else
    column.integers.push_back(column.type == Table::Type::boolean ? parse_boolean(field, where)
                                                                  : parse_integer(field, where));
}

std::size_t column_index(const std::string& name, const Row& header, const std::string& path) {
  const auto found = std::ranges::find(header, name);
  if (found == header.end()) bad_input("{}: there is no column {}", path, quote_text(name));
  return static_cast<std::size_t>(found - header.begin());
}

}  // namespace

std::vector<std::string> read_csv_header(const std::string& path) {
  return CsvFile(path).header();
}

Table read_csv_table(const std::string& path, const std::vector<CsvColumn>& columns) {
  CsvFile rows(path);
  const Row header = rows.header();
  std::vector<std::size_t> indices;
  std::vector<Table::Column> result;
  for (const auto& column : columns) {
    indices.push_back(column_index(column.name, header, path));
    result.push_back({column.name, column.type, {}, {}, {}});
  }
  for (Row row; rows.next(row);) {
    if (row.size() != header.size())
      bad_input("{}: {} fields, expected {}", rows.where(), row.size(), header.size());
    for (std::size_t i = 0; i < columns.size(); ++i)
      append_csv_value(result[i], row[indices[i]],
                       fmt::format("{}: {}", rows.where(), columns[i].name));
  }
  return Table(std::move(result));
}

Table read_csv_as_text(const std::string& path) {
  return read_csv_table(path, project(read_csv_header(path), [](const std::string& name) {
                          return CsvColumn{name, Table::Type::text};
                        }));
}

}  // namespace qkscope
