// Reads result tables back from Parquet.
#pragma once

#include <string>
#include <vector>

#include "tables/table.h"

namespace qkscope {

// The named columns in this order (all of the file when none is named). Null is NaN in real columns
// and empty in text columns; an integer that is null, a missing column or a type that no table has
// is bad input.
Table read_parquet_table(const std::string& path, const std::vector<std::string>& columns = {});

}  // namespace qkscope
