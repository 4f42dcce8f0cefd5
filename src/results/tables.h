// The result files of an analysis run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "results/analyze.h"
#include "tables/table.h"

namespace qkscope {

// file -> column -> reason -> number of empty fields.
using UndefinedCounts = std::map<std::string, std::map<std::string, std::map<std::string, int>>>;

struct ResultTable {
  std::string name;  // "qk": written as qk.csv and qk.parquet
  Table table;
  bool csv = true;  // false: Parquet only
};

struct ResultTables {
  std::vector<ResultTable> tables;
  UndefinedCounts undefined;
};

ResultTables result_tables(const AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope
