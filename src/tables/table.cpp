#include "tables/table.h"

#include <cmath>
#include <iterator>

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>

#include "core/error.h"
#include "io/arrow_error.h"
#include "io/output_file.h"

namespace qkscope {
namespace {

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

void append_field(std::string& out, const Table::Column& column, std::size_t row) {
  switch (column.type) {
    case Table::Type::integer:
      fmt::format_to(std::back_inserter(out), "{}", column.integers[row]);
      break;
    case Table::Type::boolean:
      out += column.integers[row] != 0 ? "true" : "false";
      break;
    case Table::Type::real:
      if (!std::isnan(column.reals[row]))
        fmt::format_to(std::back_inserter(out), "{}", column.reals[row]);
      break;
    case Table::Type::text:
      append_quoted(out, column.texts[row]);
      break;
  }
}

// NaN becomes null, as it becomes empty in the CSV.
std::shared_ptr<arrow::Array> to_arrow(const Table::Column& column,
                                       std::shared_ptr<arrow::Field>& field) {
  const auto finish = [](auto& builder) { return builder.Finish().ValueOrDie(); };
  const auto ok = [](const arrow::Status& status) {
    check_arrow(status, "building a result table", ErrorKind::failure);
  };
  switch (column.type) {
    case Table::Type::integer: {
      arrow::Int64Builder builder;
      ok(builder.AppendValues(column.integers));
      field = arrow::field(column.name, arrow::int64());
      return finish(builder);
    }
    case Table::Type::boolean: {
      arrow::BooleanBuilder builder;
      for (const auto value : column.integers) ok(builder.Append(value != 0));
      field = arrow::field(column.name, arrow::boolean());
      return finish(builder);
    }
    case Table::Type::real: {
      arrow::DoubleBuilder builder;
      for (const double value : column.reals)
        ok(std::isnan(value) ? builder.AppendNull() : builder.Append(value));
      field = arrow::field(column.name, arrow::float64());
      return finish(builder);
    }
    case Table::Type::text:
      break;
  }
  arrow::StringBuilder builder;
  ok(builder.AppendValues(column.texts));
  field = arrow::field(column.name, arrow::utf8());
  return finish(builder);
}

std::size_t length(const Table::Column& column) {
  switch (column.type) {
    case Table::Type::integer:
    case Table::Type::boolean:
      return column.integers.size();
    case Table::Type::real:
      return column.reals.size();
    case Table::Type::text:
      break;
  }
  return column.texts.size();
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  if (!columns_.empty()) rows_ = static_cast<std::int64_t>(length(columns_.front()));
  for (const auto& column : columns_)
    QKSCOPE_ASSERT(static_cast<std::int64_t>(length(column)) == rows_);
}

const Table::Column* Table::find(std::string_view name) const {
  for (const auto& column : columns_)
    if (column.name == name) return &column;
  return nullptr;
}

Table& Table::column(std::string name, Type type) {
  QKSCOPE_ASSERT(rows_ == 0);
  columns_.push_back({std::move(name), type, {}, {}, {}});
  return *this;
}

void Table::add(std::vector<Cell> cells) {
  QKSCOPE_ASSERT(cells.size() == columns_.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Column& column = columns_[i];
    switch (column.type) {
      case Type::integer:
      case Type::boolean:
        column.integers.push_back(std::get<std::int64_t>(cells[i]));
        break;
      case Type::real:
        column.reals.push_back(std::holds_alternative<double>(cells[i])
                                   ? std::get<double>(cells[i])
                                   : static_cast<double>(std::get<std::int64_t>(cells[i])));
        break;
      case Type::text:
        column.texts.push_back(std::move(std::get<std::string>(cells[i])));
        break;
    }
  }
  ++rows_;
}

std::string Table::to_csv() const {
  std::string out;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) out += ',';
    append_quoted(out, columns_[i].name);
  }
  out += '\n';
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows_); ++row) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) out += ',';
      append_field(out, columns_[i], row);
    }
    out += '\n';
  }
  return out;
}

void Table::write_csv(const std::string& path) const {
  write_file(path, to_csv());
}

void Table::write_parquet(const std::string& path) const {
  arrow::FieldVector fields(columns_.size());
  arrow::ArrayVector arrays;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    arrays.push_back(to_arrow(columns_[i], fields[i]));
  const auto table = arrow::Table::Make(arrow::schema(fields), arrays, rows_);
  const auto properties =
      parquet::WriterProperties::Builder().compression(parquet::Compression::ZSTD)->build();
  const auto stream = arrow::io::BufferOutputStream::Create().ValueOrDie();
  check_arrow(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), stream,
                                         std::int64_t{1} << 20, properties),
              fmt::format("writing {}", path), ErrorKind::failure);
  const auto buffer = stream->Finish().ValueOrDie();
  write_file(path, std::string_view(reinterpret_cast<const char*>(buffer->data()),
                                    static_cast<std::size_t>(buffer->size())));
}

}  // namespace qkscope
