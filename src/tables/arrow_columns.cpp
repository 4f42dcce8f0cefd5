#include "tables/arrow_columns.h"

#include <cmath>
#include <limits>

#include <arrow/api.h>

#include "core/error.h"
#include "io/arrow_error.h"

namespace qkscope {
namespace {

std::shared_ptr<arrow::Array> column_to_arrow(const Table::Column& column,
                                              std::shared_ptr<arrow::Field>& field) {
  const std::string doing = "building a result table";
  const auto ok = [&](const arrow::Status& status) {
    check_arrow(status, doing, ErrorKind::failure);
  };
  const auto finish = [&](auto& builder) {
    return take_arrow(builder.Finish(), doing, ErrorKind::failure);
  };
  switch (column.type) {
    case Table::Type::integer: {
      arrow::Int64Builder builder;
      for (const auto value : column.integers)
        ok(value == Table::kNoInteger ? builder.AppendNull() : builder.Append(value));
      field = arrow::field(column.name, arrow::int64());
      return finish(builder);
    }
    case Table::Type::boolean: {
      arrow::BooleanBuilder builder;
      for (const auto value : column.integers)
        ok(value == Table::kNoInteger ? builder.AppendNull() : builder.Append(value != 0));
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
