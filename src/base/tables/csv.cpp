#include "base/tables/csv.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

using Row = std::vector<std::string>;

// The rows of a CSV text, one after the other.
class CsvRows {
 public:
  CsvRows(std::string_view text, const std::string& path) : text_(text), path_(path) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  // False after the last one.
  bool next(Row& row) {
    if (text_.empty()) return false;
    ++number_;
    row.clear();
    while (read_field(row.emplace_back())) continue;
    return true;
  }

  std::string where() const { return fmt::format("{}: row {}", path_, number_); }

 private:
  // True where another field of the row follows.
  bool read_field(std::string& field) {
    if (text_.starts_with('"')) read_quoted(field);
    const auto end = std::min(text_.find_first_of(",\n"), text_.size());
    field += text_.substr(0, end);
    const bool more = end < text_.size() && text_[end] == ',';
    text_.remove_prefix(std::min(end + 1, text_.size()));
    if (!more && field.ends_with('\r')) field.pop_back();
    return more;
  }

  void read_quoted(std::string& field) {
    while (true) {
      const auto end = text_.find('"', 1);
      if (end == std::string_view::npos) bad_input("{}: a quote is opened and not closed", where());
      field += text_.substr(1, end - 1);
      text_.remove_prefix(end + 1);
      if (!text_.starts_with('"')) return;
      field += '"';  // written twice
    }
  }

  std::string_view text_;  // what is left
  const std::string& path_;
  std::int64_t number_ = 0;
};

double parse_real(const std::string& text, const std::string& where) {
  if (text.empty()) return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    bad_input("{}: found {}, expected a number", where, in_quotes(text));
  return value;
}

std::int64_t parse_boolean(const std::string& text, const std::string& where) {
  if (text != "true" && text != "false")
    bad_input("{}: found {}, expected true or false", where, in_quotes(text));
  return text == "true" ? 1 : 0;
}

void append(Table::Column& column, const std::string& field, const std::string& where) {
  switch (column.type) {
    case Table::Type::integer:
      column.integers.push_back(parse_integer(field, where));
      break;
    case Table::Type::boolean:
      column.integers.push_back(parse_boolean(field, where));
      break;
    case Table::Type::real:
      column.reals.push_back(parse_real(field, where));
      break;
    case Table::Type::text:
      column.texts.push_back(field);
      break;
  }
}

std::size_t index_of(const std::string& name, const Row& header, const std::string& path) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) bad_input("{}: there is no column {}", path, in_quotes(name));
  return static_cast<std::size_t>(found - header.begin());
}

Row header_of(CsvRows& rows, const std::string& path) {
  Row header;
  if (!rows.next(header)) bad_input("{}: is empty; expected a row of column names", path);
  return header;
}

}  // namespace

std::vector<std::string> read_csv_header(const std::string& path) {
  const MappedFile file(path);
  CsvRows rows(file.text(), path);
  return header_of(rows, path);
}

Table read_csv_table(const std::string& path, const std::vector<CsvColumn>& columns) {
  const MappedFile file(path);
  CsvRows rows(file.text(), path);
  const Row header = header_of(rows, path);
  std::vector<std::size_t> indices;
  std::vector<Table::Column> result;
  for (const auto& column : columns) {
    indices.push_back(index_of(column.name, header, path));
    result.push_back({column.name, column.type, {}, {}, {}});
  }
  for (Row row; rows.next(row);) {
    if (row.size() != header.size())
      bad_input("{}: {} fields, expected {}", rows.where(), row.size(), header.size());
    for (std::size_t i = 0; i < columns.size(); ++i)
      append(result[i], row[indices[i]], fmt::format("{}: {}", rows.where(), columns[i].name));
  }
  return Table(std::move(result));
}

}  // namespace qkscope
