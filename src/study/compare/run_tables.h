// Reads metrics and plasticity profiles of heads from the result tables of one or several runs, and
// computes statistics over heads for comparison with published numbers.
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

// A range of query positions, in tokens or as fractions of the range from the first to the last
// non-empty profile bin.
struct PositionInterval {
  double low = 0;
  double high = 0;
  bool fraction = false;  // false: tokens
};

// What a published number describes; `bin`, `minus`, `index` and `side` are in PublishedNumber.
enum class PublishedNumberKind {
  metric,      // statistic over the heads of a run, selected by the name of the metric
  profile,     // mean plasticity over positions `bin`, minus that over `minus` if set
  line,        // plasticity at the centre of `bin`
  heatmap,     // heat-map cell: `bin` is the key distance, `index` the query distance
  weight,      // component weight of dimension `index`
  components,  // PCA component `index` of the queries or keys (`side`) of one head
};

struct PublishedNumber {
  std::string model;   // model, checkpoint or scope ("11 models, 3239 heads")
  std::string metric;  // for a profile: table and bin, "deciles 0-10%"
  PublishedNumberKind value_kind = PublishedNumberKind::metric;
  double value = 0;  // NaN if no number was printed
  double se = 0;     // standard error from rounding and from reading a figure; NaN if unknown
  std::string text;  // the number as printed
  std::string kind;
  std::string source;
  bool preferred = true;

  PositionInterval bin;
  std::optional<PositionInterval> minus;
  std::optional<std::int64_t> layer;
  std::int64_t head = 0;
  char side = 'q';
  std::int64_t index = 0;
};

struct PublishedNumbers {
  std::string file;
  bool pooled = false;                   // statistics over several runs; model names are scopes
  std::vector<PublishedNumber> numbers;  // in file order

  std::vector<std::string> model_names() const;  // distinct, in file order
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
double rounding_error_bound(std::string_view text, double value);

// Parses a number ("0.002") or a fraction ("1/300"); NaN for any other text.
double parse_uncertainty(std::string_view text);

// Parses text that consists of exactly one number; NaN for any other text.
inline double parse_double_or_nan(std::string_view text) {
  return parse_number<double>(text).value_or(kNan);
}

struct BenchmarkScore {
  std::string name;                      // "LongBench-Pro / non-thinking / all / Overall"
  std::map<std::string, double> models;  // score by label
};

// Reads a CSV file of benchmark scores: long format (columns metric and value) or one column per
// score. The column `by` holds the labels of the models.
std::vector<BenchmarkScore> read_benchmark_results(const std::string& file, const std::string& by);

// The results folder of one finished analysis and the label of its run.
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

struct HeadPlasticityBin {
  double low = 0;  // tokens
  double high = 0;
  double ap = 0;  // attention plasticity

  double middle_position() const { return 0.5 * (low + high); }
};

struct HeadPlasticityProfile {
  std::int64_t layer = 0;
  std::vector<HeadPlasticityBin> values;  // sorted by position, not empty
};

// A per-head metric: a table column, its absolute value, or its ratio to another column.
struct HeadMetric {
  std::string name;  // in published tables
  std::string table;
  std::string column;
  bool absolute = false;
  std::string divisor = {};  // column; "": none
  std::string equals = {};   // for a text column: the value is 1 where the text is equal, else 0
  std::int64_t pc = 0;       // principal component, for the table qk
  std::string error = {};    // name in errors.csv; "": same as `name`

  std::string describe() const;  // for example "rotated |alpha_k|"
};

// The tables of one run, or of several runs pooled. Tables are read on first use.
class RunTables {
 public:
  explicit RunTables(std::vector<AnalyzedRunFolder> runs) : runs_(std::move(runs)) {}

  // Returns the label of the run or, for several runs, their number: "3 runs".
  std::string label() const;

  // Returns a metric's value for each head that has one; nullopt if a table or column is missing.
  std::optional<std::vector<HeadValue>> find_head_values(const HeadMetric& metric);
  // Returns the plasticity profiles of the heads; empty if the results have no profile bins.
  const std::vector<HeadPlasticityProfile>& plasticity_profiles();
  // Returns the standard error over texts of the mean over heads; NaN for several runs or if
  // errors.csv does not list the metric.
  double standard_error(const std::string& metric);
  // Returns the analysis options from summary.json of the first run, or an empty object.
  const Json& analysis_options();

  // Conditions on table rows: columns and their required values. Numbers match within 0.5.
  using ColumnConditions = std::vector<std::pair<std::string, std::variant<double, std::string>>>;
  // Returns the values of a column, without NaN, in the rows of all runs that meet the conditions;
  // nullopt if the table or a column is missing.
  std::optional<std::vector<double>> select_column_values(const std::string& table,
                                                          const std::string& column,
                                                          const ColumnConditions& conditions);

 private:
  const std::vector<Table>* load_tables(const std::string& name);

  std::vector<AnalyzedRunFolder> runs_;
  FileSnapshot summaries_;  // summary.json of every run
  std::map<std::string, std::optional<std::vector<Table>>> tables_;
  std::optional<std::vector<HeadPlasticityProfile>> profiles_;
  std::optional<std::map<std::string, double>> errors_;
  std::optional<Json> options_;
};

// A published number, recomputed from the results of a run.
struct RecomputedValue {
  double value = kNan;          // NaN if not available
  double se = kNan;             // standard error; NaN if unknown
  std::string column = {};      // description of the statistic and its column
  std::string missing = {};     // why the value is not available
  bool sign_arbitrary = false;  // compare absolute values
};

RecomputedValue recompute_published_number(const PublishedNumber& published, RunTables& run);

// Evaluates a metric by name: one of known_head_metrics(), or a column of the tables qk (first
// component), rotated or head_metrics. The value is the mean over heads. Suffixes (_std, _median,
// _p25, _p75, _depth_0.3, _heads) and prefixes (layer_16_, mean_, median_, share_positive_, class_)
// select another statistic.
RecomputedValue evaluate_metric(const std::string& metric, RunTables& run);

// Returns the metrics that compare_runs() compares: means, and medians of ratios.
std::vector<std::string> list_compared_metrics();

// Returns the unweighted mean over profile bins centred in the published bin, then over heads.
RecomputedValue recompute_profile_mean(const PublishedNumber& published, RunTables& run);
// Recomputes a published profile bin, heat-map cell, weight or PCA component from our results.
RecomputedValue recompute_table_value(const PublishedNumber& published, RunTables& run);
// Returns the share of rotary plane `pair` in the variance of a head orthogonal to axes a and b.
RecomputedValue evaluate_plane_variance_share(RunTables& run, std::int64_t layer, std::int64_t head,
                                              std::int64_t pair);

}  // namespace qkscope
