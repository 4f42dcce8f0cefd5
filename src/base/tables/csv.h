// Reads CSV files into tables: results of qkscope, and data files installed with it.
#pragma once

#include <string>
#include <vector>

#include "qkscope/tables.h"

namespace qkscope {

struct CsvColumn {
  std::string name;
  Table::Type type;
};

// Reads the named columns, in the given order, of a CSV file whose first row holds the column
// names. An empty field is NaN in a real column and "" in a text column. Throws a bad-input error
// that names the file and row (the header is row 1) for a missing column, a row of a different
// length or a field that does not have the column's type.
Table read_csv_table(const std::string& path, const std::vector<CsvColumn>& columns);

// Reads all columns as text.
Table read_csv_text_columns(const std::string& path);

std::vector<std::string> read_csv_header(const std::string& path);

}  // namespace qkscope
