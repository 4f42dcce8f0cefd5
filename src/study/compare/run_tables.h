// Result tables of one or several runs, read as values per head and as head profiles, and
// quantities computed from them for comparison with published numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/core/numbers.h"
#include "base/io/file_list.h"
#include "base/io/json.h"
#include "qkscope/tables.h"
#include "study/compare/published.h"

namespace qkscope {

// One finished analysis.
struct AnalyzedRunFolder {
  std::string label;
  std::string folder;
};

// Returns the finished runs of a sweep folder, or the single run of a results folder. Throws a
// bad-input error for any other folder and for a sweep without a finished run.
std::vector<AnalyzedRunFolder> find_run_folders(const std::string& folder);

struct HeadValue {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  double value = 0;  // never NaN
};

struct HeadProfileBin {
  double low = 0;  // tokens
  double high = 0;
  double ap = 0;  // attention plasticity

  double middle_position() const { return 0.5 * (low + high); }
};

struct HeadProfile {
  std::int64_t layer = 0;
  std::vector<HeadProfileBin> values;  // sorted by position, not empty
};

// A per-head quantity: a table column, its absolute value, or its ratio to another column.
struct HeadQuantity {
  std::string quantity;  // name in published tables
  std::string table;
  std::string column;
  bool absolute = false;
  std::string divisor = {};  // column; "": none
  std::string equals = {};   // for a text column: the value is 1 where the text is equal, else 0
  std::int64_t pc = 0;       // principal component, for the table qk
  std::string error = {};    // name in errors.csv; "": same as `quantity`

  std::string describe() const;  // for example "rotated |alpha_k|"
};

// The tables of one run, or of several runs pooled. Tables are read on first use.
class RunTables {
 public:
  explicit RunTables(std::vector<AnalyzedRunFolder> runs) : runs_(std::move(runs)) {}

  // Label of the run, or "3 runs" for several.
  std::string label() const;

  // Returns the heads that have a value, or nullopt if the table or a column is missing.
  std::optional<std::vector<HeadValue>> head_values(const HeadQuantity& column);
  // Returns one profile per head that has a value; empty if the results have no binned profile.
  const std::vector<HeadProfile>& profiles();
  // Returns the standard error over texts of the mean over heads; NaN for several runs or if
  // errors.csv does not list the quantity.
  double standard_error(const std::string& quantity);
  // Returns the analysis options from summary.json of the first run, or an empty object.
  const Json& options();

  // Condition on table rows: a column and its required value. Numbers match within 0.5.
  using Condition = std::pair<std::string, std::variant<double, std::string>>;
  // Returns the values of a column, without NaN, in the rows of all runs that meet the conditions;
  // nullopt if the table or a column is missing.
  std::optional<std::vector<double>> select_column_values(const std::string& table,
                                                          const std::string& column,
                                                          const std::vector<Condition>& conditions);

 private:
  const std::vector<Table>* tables(const std::string& name);

  std::vector<AnalyzedRunFolder> runs_;
  FileSnapshot summaries_;  // summary.json of every run
  std::map<std::string, std::optional<std::vector<Table>>> tables_;
  std::optional<std::vector<HeadProfile>> profiles_;
  std::optional<std::map<std::string, double>> errors_;
  std::optional<Json> options_;
};

// Our value of a published quantity.
struct MeasuredValue {
  double value = kNan;          // NaN if not available
  double se = kNan;             // standard error; NaN if unknown
  std::string column = {};      // description of the statistic and its column
  std::string missing = {};     // why the value is not available
  bool sign_arbitrary = false;  // compare absolute values
};

MeasuredValue measure_published_quantity(const PublishedNumber& published, RunTables& run);

// Evaluates a quantity by name. A name of named_head_columns(), or of any column of qk (PC0),
// rotated and head_metrics, means the mean over heads. Suffixes (_std, _median, _p25, _p75,
// _depth_0.3, _heads) and prefixes (layer_16_, mean_, median_, share_positive_, class_) select
// another statistic.
MeasuredValue evaluate_quantity(const std::string& quantity, RunTables& run);

// Returns the quantities that compare_runs() compares: means, and medians of ratios.
std::vector<std::string> list_compared_quantities();

// Averages the profile bins whose centre lies in the published bin (unweighted), then the heads.
MeasuredValue evaluate_published_profile(const PublishedNumber& published, RunTables& run);
// Recomputes a published profile bin, heat-map cell, weight or PCA component from our results.
MeasuredValue evaluate_table_value(const PublishedNumber& published, RunTables& run);
// Fraction of the complement's variance (orthogonal to a and b) in plane `pair` of one head.
MeasuredValue evaluate_variance_share_of_plane(RunTables& run, std::int64_t layer,
                                               std::int64_t head, std::int64_t pair);

}  // namespace qkscope
