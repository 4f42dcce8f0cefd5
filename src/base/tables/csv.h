// Reads tables from CSV: our own results, and data files that come with qkscope.
#pragma once

#include <string>
#include <vector>

#include "qkscope/tables.h"

namespace qkscope {

struct CsvColumn {
  std::string name;
  Table::Type type;
};

// The named columns in this order; others in the file are left out. The first row names the
// columns; fields with commas, quotes or line breaks are quoted as Table::to_csv() does it. Empty
// is NaN in real columns and "" in text columns. A missing column, a row of another length, or a
// field that is not of the column's type is bad input that names the file and the row (the header
// is row 1).
Table read_csv_table(const std::string& path, const std::vector<CsvColumn>& columns);

// The names in the first row.
std::vector<std::string> read_csv_header(const std::string& path);

}  // namespace qkscope
