// Concatenates Parquet tables of the same kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope {

struct TableFile {
  std::string name;  // value of the new column in the rows of this file
  std::string path;
};

// Throws bad input if stack_tables() would reject the columns of the files.
void check_stack(const std::string& column, const std::vector<TableFile>& files);

// Concatenates the rows of all files into a new Parquet file and returns the number of rows. The
// first column, named `column`, is text and holds the name of the file that a row comes from. The
// other columns are the union over all files, matched by name; null where a file lacks a column.
// Throws bad input if a column has different types or is named `column`. One row group is in memory
// at a time, and the output is renamed into place at the end.
std::int64_t stack_tables(const std::string& column, const std::vector<TableFile>& files,
                          const std::string& path);

}  // namespace qkscope
