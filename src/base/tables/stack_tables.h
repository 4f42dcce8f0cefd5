// Parquet tables of the same kind one below the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope {

struct TableFile {
  std::string name;  // what its rows get in the new column
  std::string path;
};

// Bad input where the files cannot be stacked under the new column: see below.
void check_stack(const std::string& column, const std::vector<TableFile>& files);

// Writes the rows of all files to `path`: first the new text column that says which file a row is
// from, then the columns of all files in the order in which they appear. Columns are joined by
// name; where a file lacks one its rows have null. A column that has another type in another file,
// or that has the new column's name, is bad input. One row group is in memory at a time. Returns
// the number of rows. The file appears when it is whole.
std::int64_t stack_tables(const std::string& column, const std::vector<TableFile>& files,
                          const std::string& path);

}  // namespace qkscope
