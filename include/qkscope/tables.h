// Result tables: named, typed columns that are written as CSV and Parquet and read from Parquet.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// A table of named columns of equal length.
class QKSCOPE_API Table {
 public:
  enum class Type { integer, real, text, boolean };

  static constexpr std::int64_t kNoInteger = std::numeric_limits<std::int64_t>::min();

  struct Column {
    std::string name;
    Type type;
    // Values of the column: only the vector for `type` is filled; its shape is (rows).
    std::vector<std::int64_t> integers;  // integer, and boolean as 0 and 1; kNoInteger is null
    std::vector<double> reals;           // NaN is null
    std::vector<std::string> texts;

    // Returns the value of an integer, boolean or real column; NaN for null.
    double number(std::size_t row) const {
      if (type == Type::real) return reals[row];
      return integers[row] == kNoInteger ? std::numeric_limits<double>::quiet_NaN()
                                         : static_cast<double>(integers[row]);
    }
  };

  using Cell = std::variant<std::int64_t, double, std::string>;

  Table() = default;
  // All columns must have the same length.
  explicit Table(std::vector<Column> columns);

  // Declares the next column. All columns must be declared before the first row is added.
  Table& column(std::string name, Type type);
  // Appends a row with one cell per column, in column order. A real column accepts integer cells;
  // NaN in an integer or boolean column is stored as null.
  void add(std::vector<Cell> cells);

  std::int64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  const Column* find(std::string_view name) const;  // nullptr if there is no such column

  // Returns CSV text. Null is an empty field; numbers have enough digits to be read back exactly.
  std::string to_csv() const;
  void write_csv(const std::string& path) const;
  void write_parquet(const std::string& path) const;

 private:
  std::vector<Column> columns_;
  std::int64_t rows_ = 0;
};

// Reads the named columns in the given order; all columns if none is named. Null is read as NaN in
// real columns and as "" in text columns. Throws a bad-input error for a null integer or boolean, a
// missing column or an unsupported type.
QKSCOPE_API Table read_parquet_table(const std::string& path,
                                     const std::vector<std::string>& columns = {});
// Like read_parquet_table(), but reads a null integer or boolean as Table::kNoInteger.
QKSCOPE_API Table read_parquet_table_with_gaps(const std::string& path,
                                               const std::vector<std::string>& columns = {});

}  // namespace qkscope
