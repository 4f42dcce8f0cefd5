// Builds one result table: declares its columns once, then fills row by row and counts what is NaN.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

class RowBuilder {
 public:
  struct ColumnSpec {
    const char* name;
    Table::Type type;
    // What a number takes that sums over every token do not have.
    enum class Needs { nothing, rows, pairs_of_keys } needs = Needs::nothing;
  };
  static constexpr auto kNeedsRows = ColumnSpec::Needs::rows;
  static constexpr auto kNeedsKeys = ColumnSpec::Needs::pairs_of_keys;

  RowBuilder(const AnalysisRun& run, std::string name, const std::vector<ColumnSpec>& columns);

  // `reason` says why numbers of this row may not exist, `no_error` why its columns se and se_free
  // may not.
  void add(std::vector<Table::Cell> cells, const std::string& reason,
           const std::string& no_error = "");
  // Moves the table to the results.
  void finish(ResultTables& results);

 private:
  const AnalysisRun& run_;
  std::string name_;
  std::vector<bool> lacks_rows_;  // (columns): the run does not have what the column takes
  Table table_;
  std::map<std::string, std::map<std::string, int>> undefined_;
};

// The seven columns that every per-head row starts with, and their cells.
std::vector<RowBuilder::ColumnSpec> head_columns(std::vector<RowBuilder::ColumnSpec> rest);
std::vector<Table::Cell> head_cells(const AnalysisRun& run, const HeadReport& head,
                                    std::vector<Table::Cell> rest);

// Why a number of this head may not exist.
std::string undefined_reason(const HeadReport& head);

}  // namespace qkscope
