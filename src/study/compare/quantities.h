// Computes the quantity of a published number from our tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/core/numbers.h"
#include "study/compare/published.h"
#include "study/compare/run_tables.h"

namespace qkscope {

// Named per-head quantities and their table columns, in display order.
const std::vector<HeadColumn>& named_head_columns();

// Our value of a published quantity.
struct MeasuredValue {
  double value = kNan;          // NaN if not available
  double se = kNan;             // standard error; NaN if unknown
  std::string column = {};      // description of the statistic and its column
  std::string missing = {};     // why the value is not available
  bool sign_arbitrary = false;  // compare absolute values
};

// Returns an unavailable value with the given reason.
MeasuredValue unavailable_value(std::string why);

// Computes our value of a published number from the tables of a run.
MeasuredValue evaluate_published_number(const PublishedNumber& published, RunTables& run);

// Evaluates a quantity by name. A name of named_head_columns(), or of any column of qk (PC0),
// rotated and head_metrics, means the mean over heads. Suffixes (_std, _median, _p25, _p75,
// _depth_0.3, _heads) and prefixes (layer_16_, mean_, median_, share_positive_, class_) select
// another statistic.
MeasuredValue evaluate_quantity(const std::string& quantity, RunTables& run);

// Returns the quantities that compare_runs() compares: means, and medians of ratios.
std::vector<std::string> compared_quantities();

// Unweighted mean over the profile bins whose centre lies in the published bin, then over heads.
MeasuredValue evaluate_published_profile(const PublishedNumber& published, RunTables& run);
// Computes our value of a published profile bin, heat-map cell, weight or PCA component.
MeasuredValue evaluate_table_value(const PublishedNumber& published, RunTables& run);
// Share of the complement's variance on one pair of axes of one head.
MeasuredValue evaluate_complement_share(RunTables& run, std::int64_t layer, std::int64_t head,
                                        std::int64_t pair);

}  // namespace qkscope
