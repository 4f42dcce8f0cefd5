// Result tables of one or several runs, read as values per head and as head profiles, and
// quantities computed from them for comparison with published numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/io/file_list.h"
#include "base/io/json.h"
#include "qkscope/experimental/study.h"
#include "qkscope/tables.h"

namespace qkscope {

// A range of query positions, in tokens or as fractions of the range that has values.
struct PublishedProfileBin {
  double low = 0;
  double high = 0;
  bool fraction = false;  // false: tokens
};

// What a published number describes; `bin`, `minus`, `index` and `side` are in PublishedNumber.
enum class PublishedValueKind {
  quantity,    // statistic over the heads of a run, selected by the name of the quantity
  profile,     // mean of the profile over `bin`, minus that over `minus` if set
  line,        // profile value at the centre of `bin`
  heatmap,     // heat-map cell: `bin` is the key distance, `index` the query distance
  weight,      // component weight of dimension `index`
  components,  // PCA component `index` of the queries or keys (`side`) of one head
};

struct PublishedNumber {
  std::string subject;   // checkpoint, model or scope
  std::string quantity;  // for a profile: table and bin, "deciles 0-10%"
  PublishedValueKind value_kind = PublishedValueKind::quantity;
  double value = 0;  // NaN if no number was printed
  double se = 0;     // standard error from rounding and from reading a figure; NaN if unknown
  std::string text;  // the number as printed
  std::string kind;
  std::string source;
  bool preferred = true;

  PublishedProfileBin bin;
  std::optional<PublishedProfileBin> minus;
  std::optional<std::int64_t> layer;
  std::int64_t head = 0;
  char side = 'q';
  std::int64_t index = 0;
};

struct PublishedNumbers {
  std::string file;
  bool pooled = false;  // numbers over several runs; subjects are scopes ("11 models, 3239 heads")
  std::vector<PublishedNumber> numbers;  // in file order

  std::vector<std::string> subjects() const;  // distinct, in file order
};

// Reads a set of published numbers. `name` is a set (published/NAME.csv of the first data folder
// that has it) or the path of a CSV file (ends in .csv or contains a slash).
// share/published/README.md describes the columns. Throws a bad-input error for an unknown name,
// with the known names, and for a bad row, with file and row.
PublishedNumbers read_published_numbers(const std::string& name);

// Returns the rounding error of a number as a paper prints it: half a unit of the last printed
// digit, in the unit of `value`. Examples: 0.0005 for "0.585", 0.005 for "34%" (value 0.34),
// 0.00005 for "19.4 (x10^3)" (value 0.0194). Approximate values ("~0.29") have one unit,
// differences ("0.61 - 0.57") the root sum of squares, texts without the value NaN.
double printed_rounding_error(std::string_view text, double value);

// Parses a number ("0.002") or a fraction ("1/300"); NaN for any other text.
double parse_uncertainty(std::string_view text);

// Parses text that consists of exactly one number; NaN for any other text.
inline double number_or_nan(std::string_view text) {
  return parse_number<double>(text).value_or(kNan);
}

struct BenchmarkScore {
  std::string name;                      // "LongBench-Pro / non-thinking / all / Overall"
  std::map<std::string, double> models;  // score by label
};

// Reads a CSV file of scores: long format (columns metric and value) or one column per score. The
// column `by` holds the labels of the models.
std::vector<BenchmarkScore> read_benchmark_results(const std::string& file, const std::string& by);

// The results folder of one finished analysis and the label of its run.
struct AnalyzedRunFolder {
  std::string label;
  std::string folder;
};

// Returns the finished runs of a sweep folder, or the single run of a results folder. Throws a
// bad-input error for any other folder and for a sweep without a finished run.
std::vector<AnalyzedRunFolder> find_run_folders(const std::string& folder);

struct HeadMetric {
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

  // Returns the label of the run or, for several runs, their number: "3 runs".
  std::string label() const;

  // Returns the heads that have a value, or nullopt if the table or a column is missing.
  std::optional<std::vector<HeadMetric>> head_values(const HeadQuantity& column);
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

// A published quantity, recomputed from our results.
struct MeasuredValue {
  double value = kNan;          // NaN if not available
  double se = kNan;             // standard error; NaN if unknown
  std::string column = {};      // description of the statistic and its column
  std::string missing = {};     // why the value is not available
  bool sign_arbitrary = false;  // compare absolute values
};

MeasuredValue measure_published_quantity(const PublishedNumber& published, RunTables& run);

// Evaluates a quantity by name: named_head_columns(), or a column of qk (PC0), rotated or
// head_metrics, as mean over heads. Suffixes (_std, _median, _p25, _p75, _depth_0.3, _heads) and
// prefixes (layer_16_, mean_, median_, share_positive_, class_) select another statistic.
MeasuredValue evaluate_quantity(const std::string& quantity, RunTables& run);

// Returns the quantities that compare_runs() compares: means, and medians of ratios.
std::vector<std::string> list_compared_quantities();

// Averages the profile bins whose centre lies in the published bin (unweighted), then the heads.
MeasuredValue evaluate_published_profile(const PublishedNumber& published, RunTables& run);
// Recomputes a published profile bin, heat-map cell, weight or PCA component from our results.
MeasuredValue evaluate_table_value(const PublishedNumber& published, RunTables& run);
// Share of rotary plane `pair` in the variance of one head that is orthogonal to its axes a and b.
MeasuredValue evaluate_variance_share_of_plane(RunTables& run, std::int64_t layer,
                                               std::int64_t head, std::int64_t pair);

}  // namespace qkscope
