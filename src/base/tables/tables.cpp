#include "qkscope/tables.h"

#include <array>
#include <cmath>
#include <memory>

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/arrow_error.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "base/tables/arrow_columns.h"
#include "base/tables/empty_table.h"

namespace qkscope {
namespace {

std::size_t column_value_count(const Table::Column& column) {
  if (column.type == Table::Type::text) return column.texts.size();
  return column.type == Table::Type::real ? column.reals.size() : column.integers.size();
}

void check_row_cells(const std::vector<Table::Column>& columns,
                     const std::vector<Table::Cell>& cells) {
  if (cells.size() != columns.size())
    reject("table: a row has {} cells; expected {}, one per column", cells.size(), columns.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool text = std::holds_alternative<std::string>(cells[i]);
    const auto* number = std::get_if<double>(&cells[i]);
    const bool real = number != nullptr && !std::isnan(*number);
    const auto type = columns[i].type;
    const bool fits = type == Table::Type::text   ? text
                      : type == Table::Type::real ? !text
                                                  : !text && !real;
    if (!fits)
      reject("table: a cell of column '{}' is {}, which the column does not hold", columns[i].name,
             text   ? "text"
             : real ? "a real number"
                    : "an integer");
  }
}

void append_quoted(std::string& out, const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

template <typename Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> text;  // integers need at most 20 characters, shortest round-trip reals 24
  out.append(text.data(), fmt::format_to(text.data(), FMT_COMPILE("{}"), number));
}

void append_csv_field(std::string& out, const Table::Column& column, std::size_t row) {
  if (column.type == Table::Type::text)
    append_quoted(out, column.texts[row]);
  else if (column.type == Table::Type::real ? std::isnan(column.reals[row])
                                            : column.integers[row] == Table::kNoInteger)
    return;  // a missing value is an empty field
  else if (column.type == Table::Type::real)
    append_number(out, column.reals[row]);
  else if (column.type == Table::Type::boolean)
    out += column.integers[row] != 0 ? "true" : "false";
  else
    append_number(out, column.integers[row]);
}

// Returns the Parquet indices of the named columns, or of all columns if no name is given.
std::vector<int> column_indices(const arrow::Schema& schema,
                                const std::vector<std::string>& columns, const std::string& path) {
  std::vector<int> indices;
  if (columns.empty())
    for (int i = 0; i < schema.num_fields(); ++i) indices.push_back(i);
  for (const auto& name : columns) {
    const int index = schema.GetFieldIndex(name);
    if (index < 0) reject("{}: there is no column '{}'; analyse again", path, name);
    indices.push_back(index);
  }
  return indices;
}

Table read_columns(const std::string& path, const std::vector<std::string>& columns,
                   NullIntegerPolicy nulls) {
  const auto reader = open_parquet(path);
  std::shared_ptr<arrow::Schema> schema;
  check_parquet_status(reader->GetSchema(&schema), path);
  std::vector<Table::Column> result;
  for (const int index : column_indices(*schema, columns, path)) {
    std::shared_ptr<arrow::ChunkedArray> column;
    check_parquet_status(reader->ReadColumn(index, &column), path);
    const auto& name = schema->field(index)->name();
    result.push_back(
        to_table_column(name, *column, nulls, fmt::format("{}: column '{}'", path, name)));
  }
  return Table(std::move(result));
}

Table read_table(const std::string& path, const std::vector<std::string>& columns,
                 NullIntegerPolicy nulls) {
  return translate_exceptions([&] {
    if (!path_exists(path)) reject("{}: there is no such file", path);
    return translate_parquet_errors(path, [&] { return read_columns(path, columns, nulls); });
  });
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  translate_exceptions([&] {
    if (!columns_.empty()) rows_ = static_cast<std::int64_t>(column_value_count(columns_.front()));
    for (const auto& column : columns_)
      if (static_cast<std::int64_t>(column_value_count(column)) != rows_)
        reject("table: column '{}' has {} rows, '{}' has {}; expected as many", column.name,
               column_value_count(column), columns_.front().name, rows_);
  });
}

const Table::Column* Table::find(std::string_view name) const {
  for (const auto& column : columns_)
    if (column.name == name) return &column;
  return nullptr;
}

Table& Table::column(std::string name, Type type) {
  translate_exceptions([&] {
    if (rows_ > 0)
      reject("table: column '{}' is declared after {} rows; expected before the first", name,
             rows_);
    columns_.push_back({std::move(name), type, {}, {}, {}});
  });
  return *this;
}

void Table::add(std::vector<Cell> cells) {
  translate_exceptions([&] {
    check_row_cells(columns_, cells);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      Column& column = columns_[i];
      const auto* integer = std::get_if<std::int64_t>(&cells[i]);
      const auto* real = std::get_if<double>(&cells[i]);
      if (column.type == Type::text)
        column.texts.push_back(std::move(std::get<std::string>(cells[i])));
      else if (column.type == Type::real)
        column.reals.push_back(real != nullptr ? *real : static_cast<double>(*integer));
      else
        column.integers.push_back(integer != nullptr ? *integer : kNoInteger);
    }
    ++rows_;
  });
}

std::string Table::to_csv() const {
  return translate_exceptions([&] {
    std::string out;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) out += ',';
      append_quoted(out, columns_[i].name);
    }
    out += '\n';
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows_); ++row) {
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        if (i > 0) out += ',';
        append_csv_field(out, columns_[i], row);
      }
      out += '\n';
    }
    return out;
  });
}

void Table::write_csv(const std::string& path) const {
  translate_exceptions([&] { write_file(path, to_csv()); });
}

void Table::write_parquet(const std::string& path) const {
  translate_exceptions([&] {
    constexpr std::int64_t kFirstBytes = 4096;  // initial buffer size
    const auto doing = fmt::format("writing {}", path);
    const auto table = to_arrow_table(*this);
    const auto stream =
        value_or_throw(arrow::io::BufferOutputStream::Create(kFirstBytes, table_memory_pool()),
                       doing, ErrorKind::failure);
    check_arrow_status(
        parquet::arrow::WriteTable(*table, table_memory_pool(), stream, kTableRowGroup,
                                   parquet_writer_properties(*table->schema())),
        doing, ErrorKind::failure);
    const auto buffer = value_or_throw(stream->Finish(), doing, ErrorKind::failure);
    write_file(path, std::string_view(reinterpret_cast<const char*>(buffer->data()),
                                      static_cast<std::size_t>(buffer->size())));
  });
}

Table read_parquet_table(const std::string& path, const std::vector<std::string>& columns) {
  return read_table(path, columns, NullIntegerPolicy::refuse);
}

Table read_parquet_table_with_gaps(const std::string& path,
                                   const std::vector<std::string>& columns) {
  return read_table(path, columns, NullIntegerPolicy::keep);
}

Table empty_table(const std::string& columns) {
  Table table;
  for (const auto& declaration : split(columns, ',')) {
    const auto words = split(declaration.substr(declaration.find_first_not_of(' ')), ' ');
    QKSCOPE_ASSERT(words.size() == 2);
    table.column(words[1], words[0] == "integer"   ? Table::Type::integer
                           : words[0] == "real"    ? Table::Type::real
                           : words[0] == "boolean" ? Table::Type::boolean
                                                   : Table::Type::text);
  }
  return table;
}

}  // namespace qkscope
