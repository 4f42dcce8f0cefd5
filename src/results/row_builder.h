// Builds one result table: declares its columns once, then fills row by row and counts what is NaN.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "results/tables.h"

namespace qkscope {

class RowBuilder {
 public:
  using Type = Table::Type;
  struct ColumnSpec {
    const char* name;
    Type type;
  };

  RowBuilder(std::string name, const std::vector<ColumnSpec>& columns) : name_(std::move(name)) {
    for (const auto& column : columns) table_.column(column.name, column.type);
  }

  // `reason` says why numbers of this row may not exist.
  void add(std::vector<Table::Cell> cells, const std::string& reason) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (const auto* number = std::get_if<double>(&cells[i]); number && std::isnan(*number))
        ++undefined_[table_.columns()[i].name][reason];
    table_.add(std::move(cells));
  }

  void finish(ResultTables& results) {
    if (!undefined_.empty()) results.undefined[name_ + ".csv"] = std::move(undefined_);
    results.tables.push_back({std::move(name_), std::move(table_)});
  }

 private:
  std::string name_;
  Table table_;
  std::map<std::string, std::map<std::string, int>> undefined_;
};

// The seven columns that every per-head row starts with.
std::vector<RowBuilder::ColumnSpec> head_columns(std::vector<RowBuilder::ColumnSpec> rest);
std::vector<Table::Cell> head_cells(const AnalysisRun& run, const HeadReport& head,
                                    std::vector<Table::Cell> rest);

// Why a number of this head may not exist.
std::string undefined_reason(const HeadReport& head);

void add_pca_tables(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results);
void add_rotation_tables(const AnalysisRun& run, ResultTables& results);
void add_plasticity_tables(const AnalysisRun& run, ResultTables& results);
void add_scatter_table(const AnalysisRun& run, ResultTables& results);

}  // namespace qkscope
