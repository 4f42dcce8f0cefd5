// Analyses of the heads of a capture or of statistics: selects heads, reads the model's
// config.json, groups query heads that share a key head (GQA). Builds result tables, which count
// empty fields by reason, and the measures of heads that summary.json and errors.csv average.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "analysis/methods/geometry.h"
#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"
#include "qkscope/model.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Returns the query heads selected by options.layers and options.heads, ascending. Throws a
// bad-input error for a layer or head that the capture lacks, with a list of available ones.
std::vector<HeadId> select_query_heads(const CaptureIndex& index, const AnalyzeOptions& options);

// Returns the attention window of a layer in tokens, or nullopt for full attention.
using LayerWindowFunction = std::function<std::optional<std::int32_t>(int layer)>;

// Removes query heads not selected by options.attention; throws a bad-input error if none remains.
void keep_heads_of_attention_kind(std::vector<HeadId>& queries, const AnalyzeOptions& options,
                                  const LayerWindowFunction& window_of);

// Splits a model name ID@REVISION; the revision of a checkpoint folder is "".
std::pair<std::string, std::string> split_model_and_revision(const std::string& name);
// Head counts, RoPE and attention windows from config.json, for captures without metadata.
class ModelInfo {
 public:
  // `name`: checkpoint folder, model id, or ID@REVISION. Downloads only config.json from the Hub.
  ModelInfo(const std::string& name, bool quiet);

  HeadCounts head_counts() const;
  RopeInfo rope(int layer) const;
  std::optional<std::int32_t> window(int layer) const;

  // check_head_counts() and check_head() throw a bad-input error if the capture cannot come from
  // this model: head counts or vector lengths differ, or the model lacks a captured layer.
  void check_head_counts(const HeadCounts& captured) const;
  void check_head(const HeadId& id, int head_dim, const std::string& file) const;

 private:
  std::string name_;
  ModelConfig model_;
};

// Query heads that share a key head (GQA): the key head is read and its moments computed once.
struct KeyHeadGroup {
  HeadId key;
  std::vector<std::size_t> heads;  // indices into AnalysisRun::heads
};

// lap_seconds() returns the seconds since the previous lap_seconds() or since construction.
class Stopwatch {
 public:
  double lap_seconds() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Runs the analyses of all groups on all cores and fills run.heads. `model` is null without
// --model. If a head fails, the error is stored in its report.
void analyze_key_head_groups(const AnalyzeOptions& options, const CaptureIndex& index,
                             const ModelInfo* model, const JackknifeGroups& texts,
                             std::vector<KeyHeadGroup> groups, AnalysisRun& run);

// Stores the error in the report of a head and drops the head's partial results.
void mark_head_failed(HeadReport& report, const Error& error);

// Returns a layer's attention window from the head's rows, else from the model, else nullopt.
std::optional<std::int32_t> window_of_layer(const HeadRows& rows, int layer,
                                            const ModelInfo* model);

bool is_statistics_folder(const std::string& folder);

// Runs all analyses that need only sums over tokens; results that need individual rows are NaN.
AnalysisRun analyze_statistics(const AnalyzeOptions& options);

// Returns the tables attention, distance and key_channels of the query heads, if there is data.
std::vector<ResultTable> statistics_tables(const Statistics& statistics, const std::string& label,
                                           const std::vector<HeadId>& queries);

// Rows and moments of a query head and its key head.
struct HeadGeometryInput {
  const HeadFile& query_file;
  const HeadFile& key_file;
  const Moments& queries;
  const Moments& keys;
  const CovarianceRanks& query_ranks;
  const CovarianceRanks& key_ranks;
  const JackknifeGroups& texts;
};

// Returns the geometry columns of captured rows. `inv_freq`: RoPE frequencies, empty for NoPE
// layers. If `rope` is unknown, leaves out columns that need keys at other positions.
GeometryResult compute_geometry_from_capture(const HeadGeometryInput& head, RopeUse rope,
                                             const std::vector<double>& inv_freq,
                                             const GeometryOptions& options, std::uint64_t seed);

// Shape (positions): number of documents with a token at each position.
std::vector<std::int64_t> count_documents_by_position(const Statistics& statistics);
Moments moments_of_head(const HeadMoments& from, std::int64_t head);

// Sets the geometry columns that the statistics can provide, for the heads of one layer.
void add_geometry_from_statistics(const Statistics& statistics, std::span<HeadReport> heads);

// Adds weight_rank_90 and weight_rank_participation of W_Q^T W_K to all heads. `model`: checkpoint
// folder, model id or ID@REVISION. Throws a bad-input error if the model lacks an analysed head.
void add_weight_ranks(const std::string& model, bool quiet, AnalysisRun& run);

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

// Columns of each result table by name: "integer pc, real qk_accuracy:rows" (syntax: tables.txt).
const std::map<std::string, std::string>& result_table_schemas();
Table make_empty_result_table(const std::string& name);

class ResultTableBuilder {
 public:
  // If `run` comes from statistics, some columns have no input (see tables.txt) and stay empty.
  ResultTableBuilder(const AnalysisRun& run, std::string name);

  // Appends a column of reals. Must be called before the first row is added.
  void add_column(const std::string& column);
  // Adds a row and counts its NaN fields by reason: under `no_error`, if set, for the columns `se`
  // and `se_free`, else under `reason`.
  void add_row(std::vector<Table::Cell> cells, const std::string& reason,
               const std::string& no_error = "");
  using MissingReasonFunction = std::function<std::string(const std::string& column)>;
  void add_row(std::vector<Table::Cell> cells, const MissingReasonFunction& reason);
  // Moves the table and its counts of empty fields into `results`.
  void move_table_to(ResultTables& results);

 private:
  const AnalysisRun& run_;
  std::string name_;
  std::vector<bool> lacks_input_;  // shape (columns): the run lacks the input of the column
  Table table_;
  std::map<std::string, std::map<std::string, int>> undefined_;
};

std::string undefined_result_reason(const HeadReport& head);

// Add the rows of one head to the tables of the PCA (qk, taxonomy, correlations) and of the
// rotation (rotated, complement); add none if the analysis did not run.
void add_qk_pca_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows);
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

// Measure of a head: a function that returns one number per head, or NaN if it is undefined.
struct HeadMeasure {
  std::string name;  // key in summary.json
  std::function<double(const HeadReport&)> of;
  bool median = false;      // summarise by the median: a few heads dominate the mean of a ratio
  bool error = true;        // jackknife replicates contain the measure
  std::string column = {};  // name in errors.csv and overview.csv; "": same as `name`

  const std::string& quantity_name() const { return column.empty() ? name : column; }
  double central_value(std::vector<double> values) const;  // mean or median
};

// Axis that classifies heads: the published method uses the first principal component, ours the
// drift axis.
enum class HeadClassCriterion { first_component, drift_axis };
HeadClass classify_head(const HeadReport& head, HeadClassCriterion by,
                        const TaxonomyOptions& options);
// One measure per class: 1 for heads of the class, 0 for heads of other classes.
std::vector<HeadMeasure> class_membership_measures(HeadClassCriterion by,
                                                   const TaxonomyOptions& options);

std::vector<HeadMeasure> pca_measures();
std::vector<HeadMeasure> rotation_measures();
std::vector<HeadMeasure> plasticity_measures();
std::vector<HeadMeasure> geometry_measures();

// The analyses that a user can select, with the name and the measures of each in summary.json.
struct AnalysisKind {
  const char* name;
  bool AnalyzeOptions::*wanted;
  std::vector<HeadMeasure> (*measures)();
};
inline constexpr AnalysisKind kAnalyses[] = {
    {"pca", &AnalyzeOptions::pca, pca_measures},
    {"rotation", &AnalyzeOptions::rotation, rotation_measures},
    {"plasticity", &AnalyzeOptions::plasticity, plasticity_measures},
    {"geometry", &AnalyzeOptions::geometry, geometry_measures}};

// Groups of heads by the layer's use of RoPE and by its attention kind.
inline constexpr const char* kHeadGroups[] = {"all", "rope", "nope", "unknown", "full", "sliding"};
bool is_in_head_group(const HeadReport& head, const std::string& group);

// Returns the defined values of a measure over the heads of a group.
std::vector<double> values_of_measure(const AnalysisRun& run, const HeadMeasure& measure,
                                      const std::string& group);

// Number of heads in one class (`heads`) out of all classified heads in a group (`of`).
struct HeadClassCount {
  std::int64_t heads = 0;
  std::int64_t of = 0;

  double fraction() const { return static_cast<double>(heads) / static_cast<double>(of); }
};
HeadClassCount count_heads_of_class(const AnalysisRun& run, const HeadMeasure& one_class,
                                    const std::string& group);

// Returns the jackknife standard errors of the means of measures with replicates, by head group.
std::vector<MeanError> compute_errors_of_means(const AnalysisRun& run,
                                               const AnalyzeOptions& options);

// Returns the jackknife standard error of a mean over heads, or null if it has none.
const MeanError* find_error_of_mean(const AnalysisRun& run, const std::string& quantity,
                                    const std::string& heads);

// Returns true if the head has fewer than ten rows (queries plus keys) per dimension, or if over 5
// % of the position shuffles reach the observed correlation along the drift axis.
bool is_unreliable(const HeadReport& head);

// Sets and logs run.warnings (heads with few rows, correlations consistent with chance) and
// run.notes (most heads encode position outside PC0, which the published classification misses).
void add_warnings_and_notes(AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope
