#include "tables/table_reader.h"

#include <limits>
#include <memory>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include "core/error.h"
#include "io/arrow_error.h"
#include "io/folder.h"

namespace qkscope {
namespace {

void append_integers(const arrow::Int64Array& from, const std::string& where, Table::Column& to) {
  if (from.null_count() > 0) bad_input("{}: empty fields in a column of integers", where);
  to.integers.insert(to.integers.end(), from.raw_values(), from.raw_values() + from.length());
}

void append_booleans(const arrow::BooleanArray& from, const std::string& where, Table::Column& to) {
  if (from.null_count() > 0) bad_input("{}: empty fields in a column of booleans", where);
  for (std::int64_t i = 0; i < from.length(); ++i) to.integers.push_back(from.Value(i) ? 1 : 0);
}

void append_reals(const arrow::DoubleArray& from, Table::Column& to) {
  for (std::int64_t i = 0; i < from.length(); ++i)
    to.reals.push_back(from.IsNull(i) ? std::numeric_limits<double>::quiet_NaN() : from.Value(i));
}

template <typename Texts>  // arrow::StringArray or arrow::LargeStringArray
void append_texts(const Texts& from, Table::Column& to) {
  for (std::int64_t i = 0; i < from.length(); ++i)
    to.texts.push_back(from.IsNull(i) ? std::string() : from.GetString(i));
}

Table::Column from_arrow(const std::string& name, const arrow::ChunkedArray& column,
                         const std::string& where) {
  Table::Column result{name, Table::Type::text, {}, {}, {}};
  const auto each = [&](Table::Type type, const auto& append) {
    result.type = type;
    for (const auto& chunk : column.chunks()) append(*chunk);
  };
  switch (column.type()->id()) {
    case arrow::Type::INT64:
      each(Table::Type::integer, [&](const arrow::Array& chunk) {
        append_integers(static_cast<const arrow::Int64Array&>(chunk), where, result);
      });
      break;
    case arrow::Type::BOOL:
      each(Table::Type::boolean, [&](const arrow::Array& chunk) {
        append_booleans(static_cast<const arrow::BooleanArray&>(chunk), where, result);
      });
      break;
    case arrow::Type::DOUBLE:
      each(Table::Type::real, [&](const arrow::Array& chunk) {
        append_reals(static_cast<const arrow::DoubleArray&>(chunk), result);
      });
      break;
    case arrow::Type::STRING:
      each(Table::Type::text, [&](const arrow::Array& chunk) {
        append_texts(static_cast<const arrow::StringArray&>(chunk), result);
      });
      break;
    case arrow::Type::LARGE_STRING:
      each(Table::Type::text, [&](const arrow::Array& chunk) {
        append_texts(static_cast<const arrow::LargeStringArray&>(chunk), result);
      });
      break;
    default:
      bad_input("{}: type {}; expected int64, double, bool or string", where,
                column.type()->ToString());
  }
  return result;
}

// Their places in the file.
std::vector<int> indices_of(const arrow::Schema& schema, const std::vector<std::string>& columns,
                            const std::string& path) {
  std::vector<int> indices;
  if (columns.empty())
    for (int i = 0; i < schema.num_fields(); ++i) indices.push_back(i);
  for (const auto& name : columns) {
    const int index = schema.GetFieldIndex(name);
    if (index < 0) bad_input("{}: there is no column '{}'; analyse again", path, name);
    indices.push_back(index);
  }
  return indices;
}

Table read(const std::string& path, const std::vector<std::string>& columns) {
  const auto file = take_arrow(arrow::io::ReadableFile::Open(path), path, ErrorKind::bad_input);
  std::unique_ptr<parquet::arrow::FileReader> reader;
  const auto doing = path + ": not a readable Parquet file";
  parquet::arrow::FileReaderBuilder builder;
  check_arrow(builder.Open(file), doing, ErrorKind::bad_input);
  check_arrow(builder.Build(&reader), doing, ErrorKind::bad_input);
  std::shared_ptr<arrow::Schema> schema;
  check_arrow(reader->GetSchema(&schema), doing, ErrorKind::bad_input);
  const auto indices = indices_of(*schema, columns, path);
  std::vector<Table::Column> result;
  for (const int index : indices) {
    std::shared_ptr<arrow::ChunkedArray> column;
    check_arrow(reader->ReadColumn(index, &column), doing, ErrorKind::bad_input);
    const auto& name = schema->field(index)->name();
    result.push_back(from_arrow(name, *column, path + ": column '" + name + "'"));
  }
  return Table(std::move(result));
}

}  // namespace

Table read_parquet_table(const std::string& path, const std::vector<std::string>& columns) {
  if (!path_exists(path)) bad_input("{}: there is no such file", path);
  try {
    return read(path, columns);
  } catch (const parquet::ParquetException& error) {
    bad_input("{}: not a readable Parquet file: {}", path, error.what());
  }
}

}  // namespace qkscope
