// Builds result tables row by row and counts empty fields by reason.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// Returns one cell per value: integers and booleans as int64, texts as std::string.
template <typename... Values>
std::vector<Table::Cell> make_cells(const Values&... values) {
  const auto cell = []<typename Value>(const Value& value) -> Table::Cell {
    if constexpr (std::is_integral_v<Value>)
      return static_cast<std::int64_t>(value);
    else if constexpr (std::is_convertible_v<Value, std::string_view>)
      return std::string(value);
    else
      return value;
  };
  return {cell(values)...};
}

// Returns the cells of the column group HEAD (tables.txt), followed by one cell per value.
template <typename... Values>
std::vector<Table::Cell> head_cells(const AnalysisRun& run, const HeadReport& head,
                                    const Values&... values) {
  return make_cells(run.label, head.query.layer, head.query.head, head.k_head, to_string(head.rope),
                    attention_name(head.window), head.n_q, head.n_k, values...);
}

// Column types and names of every result table, by table name: "integer pc, real r_q:rows".
const std::map<std::string, std::string>& result_table_schemas();
// Returns a result table without rows.
Table empty_result_table(const std::string& name);

class ResultTableBuilder {
 public:
  // If `run` comes from statistics, some columns have no input (see tables.txt) and stay empty.
  ResultTableBuilder(const AnalysisRun& run, std::string name);

  // Appends a column of reals. Must be called before the first row is added.
  void add_column(const std::string& column);
  // Counts `reason` for every NaN in the row, or `no_error`, if set, for NaN in `se` and `se_free`.
  void add(std::vector<Table::Cell> cells, const std::string& reason,
           const std::string& no_error = "");
  using ReasonOfColumn = std::function<std::string(const std::string& column)>;
  void add(std::vector<Table::Cell> cells, const ReasonOfColumn& reason);
  // Moves the table and its counts of empty fields into `results`.
  void finish(ResultTables& results);

 private:
  const AnalysisRun& run_;
  std::string name_;
  std::vector<bool> lacks_input_;  // shape (columns): the run lacks the input of the column
  Table table_;
  std::map<std::string, std::map<std::string, int>> undefined_;
};

std::string undefined_head_reason(const HeadReport& head);

// Rows of one head in the tables of the PCA (qk, taxonomy, correlations) and of the rotation
// (rotated, complement); none if the analysis did not run.
void add_qk_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows);
void add_taxonomy_row(const AnalysisRun& run, const HeadReport& head, const AnalyzeOptions& options,
                      ResultTableBuilder& rows);
void add_correlation_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows);
void add_rotation_row(const AnalysisRun& run, const HeadReport& head, const AnalyzeOptions& options,
                      ResultTableBuilder& rows);
void add_complement_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows);

void add_taxonomy_counts_table(const AnalysisRun& run, const AnalyzeOptions& options,
                               ResultTables& results);
// Tables geometry (one row per head) and pairs (one row per head and rotary pair).
void add_geometry_tables(const AnalysisRun& run, ResultTables& results);
void add_errors_table(const AnalysisRun& run, const std::vector<MeanError>& errors,
                      ResultTables& results);

}  // namespace qkscope
