// Per-head measures, averaged in summary.json and errors.csv, and warnings about a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// A function that returns one number per head, or NaN if it is undefined.
struct HeadMeasure {
  std::string name;  // key in summary.json
  std::function<double(const HeadReport&)> of;
  bool median = false;      // summarise by the median: a few heads dominate the mean of a ratio
  bool error = true;        // jackknife replicates of a head have this number
  std::string column = "";  // name in errors.csv and overview.csv where it differs

  const std::string& quantity() const { return column.empty() ? name : column; }
  double central_value(std::vector<double> values) const;  // mean or median
};

std::vector<HeadMeasure> pca_measures();

// The published classification uses the first principal component; ours uses the drift axis.
enum class ClassCriterion { first_component, drift_axis };
HeadClass classify_head(const HeadReport& head, ClassCriterion by, const TaxonomyOptions& options);
// One measure per class: 1 for heads of the class, 0 for heads of other classes.
std::vector<HeadMeasure> class_membership_measures(ClassCriterion by,
                                                   const TaxonomyOptions& options);

std::vector<HeadMeasure> rotation_measures();
std::vector<HeadMeasure> plasticity_measures();
std::vector<HeadMeasure> geometry_measures();

// Groups of heads by the layer's use of RoPE and by its attention kind.
inline constexpr const char* kHeadGroups[] = {"all", "rope", "nope", "unknown", "full", "sliding"};
bool is_in_head_group(const HeadReport& head, const std::string& group);

// Returns the defined values of a measure over the heads of a group.
std::vector<double> values_of_measure(const AnalysisRun& run, const HeadMeasure& measure,
                                      const std::string& group);

// Number of heads in one class (`heads`) out of all classified heads in a group (`of`).
struct ClassCount {
  std::int64_t heads = 0;
  std::int64_t of = 0;

  double fraction() const { return static_cast<double>(heads) / static_cast<double>(of); }
};
ClassCount count_heads_of_class(const AnalysisRun& run, const HeadMeasure& one_class,
                                const std::string& group);

// Returns the jackknife error of every mean in the summary, for each group of heads. Leaves out
// measures without replicates.
std::vector<MeanError> compute_errors_of_means(const AnalysisRun& run,
                                               const AnalyzeOptions& options);

// Returns null if the mean has no error.
const MeanError* find_error_of_mean(const AnalysisRun& run, const std::string& quantity,
                                    const std::string& heads);

// ---- Warnings and notes about the results of a run

// Returns true if the head has fewer than ten rows (queries plus keys) per dimension, or if over 5
// % of the position shuffles reach the observed correlation along the drift axis.
bool has_few_rows(const HeadReport& head);

// Sets and logs run.warnings (heads with few rows, correlations within chance) and run.notes (most
// heads encode position outside PC0, which the published classification misses).
void add_warnings_and_notes(AnalysisRun& run, const AnalyzeOptions& options);

}  // namespace qkscope
