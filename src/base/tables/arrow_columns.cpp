#include "base/tables/arrow_columns.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <arrow/api.h>
#include <parquet/properties.h>

#include "base/core/error.h"
#include "base/io/arrow_error.h"

namespace qkscope {
namespace {

constexpr char kDoing[] = "building a result table";

// What `missing` says true of becomes null.
template <typename Builder, typename Value, typename Missing>
std::shared_ptr<arrow::Array> to_array(const std::vector<Value>& values, const Missing& missing) {
  std::vector<std::uint8_t> there(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) there[i] = missing(values[i]) ? 0 : 1;
  Builder builder(table_memory());
  if (!values.empty())  // Arrow copies from the address of no values, too
    check_arrow(builder.AppendValues(values.data(), std::ssize(values), there.data()), kDoing,
                ErrorKind::failure);
  return take_arrow(builder.Finish(), kDoing, ErrorKind::failure);
}

std::shared_ptr<arrow::Array> texts_to_array(const std::vector<std::string>& texts) {
  arrow::StringBuilder builder(table_memory());
  check_arrow(builder.AppendValues(texts), kDoing, ErrorKind::failure);
  return take_arrow(builder.Finish(), kDoing, ErrorKind::failure);
}

std::shared_ptr<arrow::Array> booleans_to_array(const std::vector<std::int64_t>& values) {
  constexpr std::uint8_t kMissing = 2;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(values.size());
  for (const auto value : values)
    bytes.push_back(value == Table::kNoInteger ? kMissing : value != 0 ? 1 : 0);
  return to_array<arrow::BooleanBuilder>(bytes, [](auto byte) { return byte == kMissing; });
}

std::shared_ptr<arrow::Array> column_to_arrow(const Table::Column& column,
                                              std::shared_ptr<arrow::Field>& field) {
  switch (column.type) {
    case Table::Type::integer:
      field = arrow::field(column.name, arrow::int64());
      return to_array<arrow::Int64Builder>(column.integers,
                                           [](auto value) { return value == Table::kNoInteger; });
    case Table::Type::boolean:
      field = arrow::field(column.name, arrow::boolean());
      return booleans_to_array(column.integers);
    case Table::Type::real:
      field = arrow::field(column.name, arrow::float64());
      return to_array<arrow::DoubleBuilder>(column.reals,
                                            [](double value) { return std::isnan(value); });
    case Table::Type::text:
      break;
  }
  field = arrow::field(column.name, arrow::utf8());
  return texts_to_array(column.texts);
}

template <typename Array>  // arrow::Int64Array, arrow::Int32Array or arrow::BooleanArray
void append_integers(const Array& from, Gaps gaps, const std::string& where, Table::Column& to) {
  if (gaps == Gaps::refuse && from.null_count() > 0)
    bad_input("{}: empty fields in a column of {}", where,
              to.type == Table::Type::boolean ? "booleans" : "integers");
  for (std::int64_t i = 0; i < from.length(); ++i)
    to.integers.push_back(from.IsNull(i) ? Table::kNoInteger
                                         : static_cast<std::int64_t>(from.Value(i)));
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

}  // namespace

arrow::MemoryPool* table_memory() {
  return arrow::system_memory_pool();
}

std::shared_ptr<parquet::WriterProperties> table_properties(const arrow::Schema& schema) {
  parquet::WriterProperties::Builder builder;
  builder.memory_pool(table_memory());
  builder.compression(parquet::Compression::ZSTD);
  for (const auto& field : schema.fields()) {
    if (field->type()->id() != arrow::Type::DOUBLE) continue;
    builder.disable_dictionary(field->name());
    builder.encoding(field->name(), parquet::Encoding::BYTE_STREAM_SPLIT);
  }
  return builder.build();
}

std::shared_ptr<arrow::Table> to_arrow(const Table& table) {
  const auto& columns = table.columns();
  arrow::FieldVector fields(columns.size());
  arrow::ArrayVector arrays;
  for (std::size_t i = 0; i < columns.size(); ++i)
    arrays.push_back(column_to_arrow(columns[i], fields[i]));
  return arrow::Table::Make(arrow::schema(fields), arrays, table.rows());
}

Table::Column from_arrow(const std::string& name, const arrow::ChunkedArray& column, Gaps gaps,
                         const std::string& where) {
  Table::Column result{name, Table::Type::text, {}, {}, {}};
  const auto each = [&](Table::Type type, const auto& append) {
    result.type = type;
    for (const auto& chunk : column.chunks()) append(*chunk);
  };
  switch (column.type()->id()) {
    case arrow::Type::INT64:
      each(Table::Type::integer, [&](const arrow::Array& chunk) {
        append_integers(static_cast<const arrow::Int64Array&>(chunk), gaps, where, result);
      });
      break;
    case arrow::Type::INT32:
      each(Table::Type::integer, [&](const arrow::Array& chunk) {
        append_integers(static_cast<const arrow::Int32Array&>(chunk), gaps, where, result);
      });
      break;
    case arrow::Type::BOOL:
      each(Table::Type::boolean, [&](const arrow::Array& chunk) {
        append_integers(static_cast<const arrow::BooleanArray&>(chunk), gaps, where, result);
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
      bad_input("{}: type {}; expected int32, int64, double, bool or string", where,
                column.type()->ToString());
  }
  return result;
}

}  // namespace qkscope
