// Tables of results: named, typed columns, written as CSV and Parquet and read back from Parquet.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

class QKSCOPE_API Table {
 public:
  enum class Type { integer, real, text, boolean };

  static constexpr std::int64_t kNoInteger = std::numeric_limits<std::int64_t>::min();

  struct Column {
    std::string name;
    Type type;
    // One of these holds the column's values; the others are empty.
    // (rows); integer columns, and boolean ones as 0 and 1; kNoInteger: there is no value
    std::vector<std::int64_t> integers;
    std::vector<double> reals;       // (rows); NaN: there is no value
    std::vector<std::string> texts;  // (rows)

    // Of a column that is no text; NaN: there is no value.
    double number(std::size_t row) const {
      if (type == Type::real) return reals[row];
      return integers[row] == kNoInteger ? std::numeric_limits<double>::quiet_NaN()
                                         : static_cast<double>(integers[row]);
    }
  };

  using Cell = std::variant<std::int64_t, double, std::string>;

  Table() = default;
  // Whole columns, all of the same length.
  explicit Table(std::vector<Column> columns);

  // Declares a column. All columns are declared, in the order of the file, before the first row.
  Table& column(std::string name, Type type);
  // One row: a cell per column, in order. An integer cell may fill a real column, and NaN leaves a
  // field of an integer or boolean column empty.
  void add(std::vector<Cell> cells);

  std::int64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  const Column* find(std::string_view name) const;  // null when there is none

  // What has no value is an empty field; numbers carry every digit they need to be read back
  // exactly.
  std::string to_csv() const;
  void write_csv(const std::string& path) const;
  // What has no value is null.
  void write_parquet(const std::string& path) const;

 private:
  std::vector<Column> columns_;
  std::int64_t rows_ = 0;
};

// The named columns in this order (all of the file when none is named). Null is NaN in real columns
// and empty in text columns; an integer that is null, a missing column or a type that no table has
// is bad input.
QKSCOPE_API Table read_parquet_table(const std::string& path,
                                     const std::vector<std::string>& columns = {});
// The same, but an integer or boolean that is null is Table::kNoInteger.
QKSCOPE_API Table read_parquet_table_with_gaps(const std::string& path,
                                               const std::vector<std::string>& columns = {});

}  // namespace qkscope
