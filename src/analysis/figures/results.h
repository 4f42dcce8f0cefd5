// Result tables of an analysis or a sweep, the runs they contain, and the grouping of rows by run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/io/file_list.h"
#include "base/io/json.h"
#include "base/numerics/sample_statistics.h"
#include "base/tables/empty_table.h"
#include "qkscope/figures.h"
#include "qkscope/tables.h"

namespace qkscope {

struct RunInfo {
  std::string label;  // value of the column "model"
  std::string phase;  // empty for a single analysis
  std::int64_t order = 0;
  std::string title;   // the label as figures show it, see display_label()
  std::string family;  // model family: from runs.json, else derived from the model's name
  double high = 0.7;   // thresholds of |r| for head classes in this run's analysis
  double low = 0.3;
  Json facts;  // the run's entry in runs.json plus its summary.json and timings.json
};

// Returns the label shown in figures: the last component of a path, the repository name for a
// folder in the Hub cache, any other label unchanged.
std::string display_label(const std::string& label);

// Returns the model family, for example "qwen3" for "Qwen/Qwen3-4B-Base": the last path component
// up to and including its first version number, in lower case. Parameter counts ("7b") and training
// steps ("1000") are not versions. Returns "" for names with fewer than three leading letters.
std::string model_family(std::string_view model);

// Returns true if the last path components of both names are equal, ignoring case, '-' and '_'.
bool is_same_model(std::string_view x, std::string_view y);

// Values of one measure, shape (runs, heads of the run).
using HeadValuesByRun = std::vector<std::vector<double>>;

struct HeadOfRun {
  std::size_t run;
  std::int64_t layer;
  std::int64_t head;

  auto operator<=>(const HeadOfRun&) const = default;  // NOLINT(modernize-use-nullptr)
};

// A result table with the run index of each row.
class ResultFrame {
 public:
  using RowFilter = std::function<bool(std::size_t row)>;

  // `run_of_row` (rows): run index of each row, from 0 to run_count - 1.
  ResultFrame(Table table, std::string path, std::vector<std::size_t> run_of_row,
              std::size_t run_count)
      : table_(std::move(table)),
        path_(std::move(path)),
        run_(std::move(run_of_row)),
        run_count_(run_count) {
    for (const auto& stored : table_.columns())
      if (std::ranges::count(stored.integers, Table::kNoInteger) > 0)
        columns_with_nulls_.insert(stored.name);
  }

  std::size_t row_count() const { return run_.size(); }
  // Run of each row, as an index into AnalysisResults::runs().
  const std::vector<std::size_t>& run_indices() const { return run_; }
  bool has_column(std::string_view column) const { return table_.find(column) != nullptr; }

  // Each accessor throws a bad-input error if the column is missing or has a different type.
  const std::vector<double>& real_column(std::string_view name) const {
    return column(name, Table::Type::real).reals;
  }
  const std::vector<std::int64_t>& integer_column(std::string_view name) const;  // no nulls allowed
  const std::vector<std::int64_t>& nullable_integer_column(std::string_view name) const {
    return column(name, Table::Type::integer).integers;
  }
  const std::vector<std::string>& text_column(std::string_view name) const {
    return column(name, Table::Type::text).texts;
  }
  // Returns a column of reals, integers or booleans as double; NaN for missing values.
  std::vector<double> numeric_column(std::string_view name) const;
  // Returns the column "head", which is named "q_head" in some tables.
  const std::vector<std::int64_t>& head_column() const {
    return integer_column(has_column("head") ? "head" : "q_head");
  }
  HeadOfRun head_at(std::size_t row) const {
    return {run_[row], integer_column("layer")[row], head_column()[row]};
  }

  // True for rows of principal component 0, and for all rows of a table without the column `pc`.
  bool is_first_component(std::size_t row) const {
    return !has_column("pc") || nullable_integer_column("pc")[row] == 0;
  }
  bool is_nope(std::size_t row) const { return text_column("rope")[row] == "nope"; }
  bool has_nope_rows() const;

  // Attention kind of the row's layer: "full", "sliding:512" or "none"; "" in older results.
  const std::string& attention_kind(std::size_t row) const;

  // Groups `values` (rows) by run, leaving out NaN and rows that `filter` rejects.
  HeadValuesByRun group_by_run(const std::vector<double>& values,
                               const RowFilter& filter = {}) const;
  HeadValuesByRun group_by_run(std::string_view name, const RowFilter& filter = {}) const {
    return group_by_run(real_column(name), filter);
  }

 private:
  const Table::Column& column(std::string_view name, Table::Type type) const;

  Table table_;
  std::string path_;
  std::vector<std::size_t> run_;
  std::size_t run_count_;
  std::set<std::string, std::less<>> columns_with_nulls_;  // of integers
};

struct ConfidenceInterval {
  double low = 0;
  double high = 0;
};

class AnalysisResults {
 public:
  // Opens a folder of `qkscope analyze` or `sweep`. Throws a bad-input error if it has no table.
  explicit AnalysisResults(std::string folder, DrawOptions choices = {});

  const std::string& folder() const { return folder_; }
  // Throws a bad-input error if another analysis has replaced the tables since construction.
  void check_tables_unchanged() const { summary_.check_unchanged(); }
  const DrawOptions& draw_options() const { return choices_; }
  const std::string& sweep_name() const { return sweep_name_; }  // empty for a single analysis
  const std::vector<RunInfo>& runs() const { return runs_; }     // sorted by RunInfo::order
  bool has_single_run() const { return runs_.size() == 1; }
  // Label and title of a run as one line of text, for CSV cells and captions.
  std::string run_label(std::size_t run) const;
  std::string run_title(std::size_t run = 0) const;
  // Entries of runs.json that have no rows in any table.
  const std::vector<Json>& runs_without_results() const { return runs_without_results_; }
  bool has_table(const std::string& table) const;
  // Reads a table on first use; keeps only heads of the attention kind in DrawOptions::attention.
  const ResultFrame& frame(const std::string& table) const;

  // Returns the 95 % confidence interval of a mean over heads ("all", "rope" or "nope"), or NaN.
  ConfidenceInterval confidence_interval(std::size_t run, const std::string& quantity,
                                         const std::string& heads = "all") const;

 private:
  std::string table_path(const std::string& table) const {
    return folder_ + "/" + table + ".parquet";
  }
  std::optional<std::size_t> find_run(const std::string& label) const;
  void read_run_metadata();  // completes runs_, which have only label, phase and order
  void read_confidence_intervals();

  std::string folder_;
  FileSnapshot summary_;
  DrawOptions choices_;
  std::string sweep_name_;
  std::vector<Json> runs_without_results_;
  std::vector<RunInfo> runs_;
  // Confidence intervals by run, quantity and group of heads.
  std::map<std::tuple<std::size_t, std::string, std::string>, ConfidenceInterval> intervals_;
  mutable std::map<std::string, std::unique_ptr<ResultFrame>> frames_;
};

// Heads of one run that a panel averages: equal attention kind and equal ranges of visible keys.
struct PanelHeadGroup {
  std::size_t run = 0;
  std::string attention;  // empty: the run has only one kind
  std::string title;
};

// Groups of heads, one per panel of a figure, and the group of every table row.
struct PanelHeadGroups {
  std::vector<PanelHeadGroup> groups;
  std::vector<std::size_t> of_row;  // (rows): index into groups

  PanelHeadGroups(const AnalysisResults& results, const ResultFrame& frame);
  // Returns a caption sentence if some run has more than one attention kind, else "".
  std::string attention_kinds_note() const;
};

// Column of head_profile with the standard error over texts: "se", formerly "stderr"; "" if none.
std::string profile_error_column(const ResultFrame& profile);

// Returns the |r| thresholds of the head classes: "0.3 and 0.7", or a phrase if they vary by run.
std::string taxonomy_bounds_text(const AnalysisResults& results);

std::vector<double> absolute_values(std::vector<double> values);

// Returns an axis limit per group of heads: the column's largest value, or 1 if it has no values.
std::vector<double> largest_value_by_group(const PanelHeadGroups& groups, const ResultFrame& frame,
                                           const std::string& column);

// Returns the indices of up to `count` outliers of a scatter plot, farthest first. The distance of
// a point from (median of x, median of y) is measured in interquartile ranges of x and y. A point
// whose label would overlap the label of a farther point is skipped.
std::vector<std::size_t> find_outliers(const std::vector<double>& x, const std::vector<double>& y,
                                       std::size_t count);

// Histogram bins of equal width. Values outside [low, high] are counted in the outermost bins.
struct HistogramBins {
  double low = 0;
  double high = 1;
  int count = 1;

  double lower_edge(int bin) const { return low + (high - low) * bin / count; }
  std::vector<std::int64_t> count_per_bin(const std::vector<double>& values) const;  // (count)
};

constexpr std::int64_t as_integer_cell(std::size_t index) {
  return static_cast<std::int64_t>(index);
}

}  // namespace qkscope
