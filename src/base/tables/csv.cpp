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
  bool read_row(Row& row) {
    const auto status = rows_.read_row(row);
    if (status == CsvParser::CsvRowStatus::unclosed_quote)
      reject("{}: a quote is opened and not closed", row_location());
    return status == CsvParser::CsvRowStatus::row;
  }

  Row read_header() {
    Row names;
    if (!read_row(names)) reject("{}: is empty; expected a row of column names", path_);
    return names;
  }

  std::string row_location() const { return fmt::format("{}: row {}", path_, rows_.row_number()); }

 private:
  const std::string& path_;
  MappedFile file_;
  CsvParser rows_;
};

double parse_real(const std::string& text, const std::string& where) {
  if (text.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto value = parse_number<double>(text);
  if (!value) reject("{}: found {}, expected a number", where, quote_text(text));
  return *value;
}

std::int64_t parse_boolean(const std::string& text, const std::string& where) {
  if (text != "true" && text != "false")
    reject("{}: found {}, expected true or false", where, quote_text(text));
  return text == "true" ? 1 : 0;
}

void parse_into_column(Table::Column& column, const std::string& field, const std::string& where) {
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
  if (found == header.end()) reject("{}: there is no column {}", path, quote_text(name));
  return static_cast<std::size_t>(found - header.begin());
}

}  // namespace

std::vector<std::string> read_csv_header(const std::string& path) {
  return CsvFile(path).read_header();
}

Table read_csv_table(const std::string& path, const std::vector<CsvColumn>& columns) {
  CsvFile rows(path);
  const Row header = rows.read_header();
  std::vector<std::size_t> indices;
  std::vector<Table::Column> result;
  for (const auto& column : columns) {
    indices.push_back(column_index(column.name, header, path));
    result.push_back({column.name, column.type, {}, {}, {}});
  }
  for (Row row; rows.read_row(row);) {
    if (row.size() != header.size())
      reject("{}: {} fields, expected {}", rows.row_location(), row.size(), header.size());
    for (std::size_t i = 0; i < columns.size(); ++i)
      parse_into_column(result[i], row[indices[i]],
                        fmt::format("{}: {}", rows.row_location(), columns[i].name));
  }
  return Table(std::move(result));
}

Table read_csv_text_columns(const std::string& path) {
  return read_csv_table(path, to_vector(read_csv_header(path), [](const std::string& name) {
                          return CsvColumn{name, Table::Type::text};
                        }));
}

}  // namespace qkscope
