// Builds result tables row by row and counts empty fields by reason.
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
    // Input of the column that statistics (sums over every token) lack.
    enum class Needs { nothing, rows, pairs_of_keys } needs = Needs::nothing;
  };
  static constexpr auto kNeedsRows = ColumnSpec::Needs::rows;
  static constexpr auto kNeedsKeys = ColumnSpec::Needs::pairs_of_keys;

  RowBuilder(const AnalysisRun& run, std::string name, const std::vector<ColumnSpec>& columns);

  // `reason` is counted for every NaN of the row; NaN in the columns `se` and `se_free` counts as
  // `no_error`, if set.
  void add(std::vector<Table::Cell> cells, const std::string& reason,
           const std::string& no_error = "");
  // Moves the table and its counts of empty fields to `results`.
  void finish(ResultTables& results);

 private:
  const AnalysisRun& run_;
  std::string name_;
  std::vector<bool> lacks_rows_;  // shape (columns): the run lacks the input of the column
  Table table_;
  std::map<std::string, std::map<std::string, int>> undefined_;
};

// Columns that start every table of heads (model, layer, head, k_head, rope, attention, n_q, n_k),
// followed by `rest`, and their cells.
std::vector<RowBuilder::ColumnSpec> head_columns(std::vector<RowBuilder::ColumnSpec> rest);
std::vector<Table::Cell> head_cells(const AnalysisRun& run, const HeadReport& head,
                                    std::vector<Table::Cell> rest);

// Returns the reason why numbers of this head are undefined.
std::string undefined_reason(const HeadReport& head);

// Tables of the PCA (qk, taxonomy and taxonomy_counts, correlations), of the rotation (rotated,
// complement) and errors.
void add_qk(const AnalysisRun& run, ResultTables& results);
void add_taxonomy(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results);
void add_correlations(const AnalysisRun& run, ResultTables& results);
void add_rotated(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results);
void add_complement(const AnalysisRun& run, ResultTables& results);
void add_errors(const AnalysisRun& run, const std::vector<MeanError>& errors,
                ResultTables& results);

}  // namespace qkscope
