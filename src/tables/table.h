// A result table: named, typed columns that grow row by row, written as CSV and as Parquet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace qkscope {

class Table {
 public:
  enum class Type { integer, real, text, boolean };

  struct Column {
    std::string name;
    Type type;
    std::vector<std::int64_t> integers;  // integer and boolean columns
    std::vector<double> reals;
    std::vector<std::string> texts;
  };

  using Cell = std::variant<std::int64_t, double, std::string>;

  Table() = default;
  // Whole columns, all of the same length.
  explicit Table(std::vector<Column> columns);

  // Columns are declared in the order of the file.
  Table& column(std::string name, Type type);
  // One cell per column, in order. An integer cell may fill a real column.
  void add(std::vector<Cell> cells);

  std::int64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  const Column* find(std::string_view name) const;  // null when there is none

  // NaN is an empty field; numbers carry every digit they need to be read back exactly.
  std::string to_csv() const;
  void write_csv(const std::string& path) const;
  void write_parquet(const std::string& path) const;

 private:
  std::vector<Column> columns_;
  std::int64_t rows_ = 0;
};

}  // namespace qkscope
