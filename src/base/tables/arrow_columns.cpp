#include "base/tables/arrow_columns.h"

#include <cmath>
#include <new>
#include <type_traits>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/arrow_error.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

constexpr char kDoing[] = "building a result table";

// Converts values to an Arrow array. Values for which missing(value) is true become null.
template <typename Builder, typename Value, typename Missing>
std::shared_ptr<arrow::Array> to_arrow_array(const std::vector<Value>& values,
                                             const Missing& missing) {
  std::vector<std::uint8_t> there(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) there[i] = missing(values[i]) ? 0 : 1;
  Builder builder(table_memory_pool());
  if (!values.empty())  // AppendValues() reads from a null address even for zero values
    check_arrow_status(builder.AppendValues(values.data(), std::ssize(values), there.data()),
                       kDoing, ErrorKind::failure);
  return value_or_throw(builder.Finish(), kDoing, ErrorKind::failure);
}

std::shared_ptr<arrow::Array> booleans_to_arrow(const std::vector<std::int64_t>& values) {
  constexpr std::uint8_t kMissing = 2;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(values.size());
  for (const auto value : values)
    bytes.push_back(value == Table::kNoInteger ? kMissing : value != 0 ? 1 : 0);
  return to_arrow_array<arrow::BooleanBuilder>(bytes, [](auto byte) { return byte == kMissing; });
}

std::shared_ptr<arrow::Array> column_to_arrow(const Table::Column& column) {
  if (column.type == Table::Type::integer)
    return to_arrow_array<arrow::Int64Builder>(
        column.integers, [](auto value) { return value == Table::kNoInteger; });
  if (column.type == Table::Type::boolean) return booleans_to_arrow(column.integers);
  if (column.type == Table::Type::real)
    return to_arrow_array<arrow::DoubleBuilder>(column.reals,
                                                [](double value) { return std::isnan(value); });
  arrow::StringBuilder builder(table_memory_pool());
  check_arrow_status(builder.AppendValues(column.texts), kDoing, ErrorKind::failure);
  return value_or_throw(builder.Finish(), kDoing, ErrorKind::failure);
}

// Appends the values of an Arrow chunk to a table column: to its reals, texts or integers.
template <typename Array>
void append_values(const Array& from, NullIntegerPolicy nulls, const std::string& where,
                   Table::Column& to) {
  if constexpr (std::is_same_v<Array, arrow::DoubleArray>) {
    for (std::int64_t i = 0; i < from.length(); ++i)
      to.reals.push_back(from.IsNull(i) ? kNan : from.Value(i));
  } else if constexpr (requires { from.GetString(0); }) {
    for (std::int64_t i = 0; i < from.length(); ++i)
      to.texts.push_back(from.IsNull(i) ? std::string() : from.GetString(i));
  } else {
    if (nulls == NullIntegerPolicy::refuse && from.null_count() > 0)
      reject("{}: empty fields in a column of {}", where,
             to.type == Table::Type::boolean ? "booleans" : "integers");
    for (std::int64_t i = 0; i < from.length(); ++i)
      to.integers.push_back(from.IsNull(i) ? Table::kNoInteger
                                           : static_cast<std::int64_t>(from.Value(i)));
  }
}

// If the Arrow column's type matches Array, appends all of its chunks and returns true.
template <typename Array>
bool try_append_chunks(const arrow::ChunkedArray& from, Table::Type type, NullIntegerPolicy nulls,
                       const std::string& where, Table::Column& to) {
  if (from.type()->id() != Array::TypeClass::type_id) return false;
  to.type = type;
  for (const auto& chunk : from.chunks())
    append_values(static_cast<const Array&>(*chunk), nulls, where, to);
  return true;
}

// Throws std::bad_alloc if the inner pool is out of memory. Arrow's dictionary encoder ignores a
// failed allocation of its hash table and would write through a null pointer.
class ThrowingMemoryPool : public arrow::ProxyMemoryPool {
 public:
  using arrow::ProxyMemoryPool::ProxyMemoryPool;

  arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
    return throw_if_out_of_memory(ProxyMemoryPool::Allocate(size, alignment, out));
  }
  arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                           std::uint8_t** memory) override {
    return throw_if_out_of_memory(
        ProxyMemoryPool::Reallocate(old_size, new_size, alignment, memory));
  }

 private:
  static arrow::Status throw_if_out_of_memory(arrow::Status status) {
    if (status.IsOutOfMemory()) throw std::bad_alloc();
    return status;
  }
};

}  // namespace

arrow::MemoryPool* table_memory_pool() {
  static auto* pool = new ThrowingMemoryPool(arrow::system_memory_pool());  // outlives all buffers
  return pool;
}

arrow::MemoryPool* head_file_memory_pool() {
  static auto* pool = new ThrowingMemoryPool(arrow::default_memory_pool());
  return pool;
}

std::shared_ptr<parquet::WriterProperties> parquet_writer_properties(const arrow::Schema& schema) {
  parquet::WriterProperties::Builder builder;
  builder.memory_pool(table_memory_pool());
  builder.compression(parquet::Compression::ZSTD);
  for (const auto& field : schema.fields()) {
    if (field->type()->id() != arrow::Type::DOUBLE) continue;
    builder.disable_dictionary(field->name());
    builder.encoding(field->name(), parquet::Encoding::BYTE_STREAM_SPLIT);
  }
  return builder.build();
}

std::shared_ptr<arrow::Table> to_arrow_table(const Table& table) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const auto& column : table.columns()) {
    arrays.push_back(column_to_arrow(column));
    fields.push_back(arrow::field(column.name, arrays.back()->type()));
  }
  return arrow::Table::Make(arrow::schema(fields), arrays, table.rows());
}

void check_parquet_status(const arrow::Status& status, const std::string& path) {
  check_arrow_status(status, path + ": not a readable Parquet file", ErrorKind::bad_input);
}

std::unique_ptr<parquet::arrow::FileReader> open_parquet(const std::string& path) {
  check_regular_file(path);
  const auto file = value_or_throw(arrow::io::ReadableFile::Open(path), path, ErrorKind::bad_input);
  parquet::arrow::FileReaderBuilder builder;
  check_parquet_status(builder.Open(file), path);
  std::unique_ptr<parquet::arrow::FileReader> reader;
  check_parquet_status(builder.Build(&reader), path);
  return reader;
}

Table::Column to_table_column(const std::string& name, const arrow::ChunkedArray& column,
                              NullIntegerPolicy nulls, const std::string& where) {
  Table::Column result{name, Table::Type::text, {}, {}, {}};
  const bool known =
      try_append_chunks<arrow::Int64Array>(column, Table::Type::integer, nulls, where, result) ||
      try_append_chunks<arrow::Int32Array>(column, Table::Type::integer, nulls, where, result) ||
      try_append_chunks<arrow::BooleanArray>(column, Table::Type::boolean, nulls, where, result) ||
      try_append_chunks<arrow::DoubleArray>(column, Table::Type::real, nulls, where, result) ||
      try_append_chunks<arrow::StringArray>(column, Table::Type::text, nulls, where, result) ||
      try_append_chunks<arrow::LargeStringArray>(column, Table::Type::text, nulls, where, result);
  if (!known)
    reject("{}: type {}; expected int32, int64, double, bool or string", where,
           column.type()->ToString());
  return result;
}

}  // namespace qkscope
