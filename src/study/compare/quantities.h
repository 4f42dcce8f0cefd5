// Computes the quantity of a published number from our tables.
#pragma once

#include <string>
#include <vector>

#include "base/core/numbers.h"
#include "study/compare/published.h"
#include "study/compare/run_numbers.h"

namespace qkscope {

// Quantities of heads with a name of their own, in display order.
const std::vector<HeadColumn>& named_columns();

struct OurNumber {
  double value = kNan;       // NaN if not available
  double se = kNan;          // standard error; NaN if unknown
  std::string column = {};   // description of the statistic and its column
  std::string missing = {};  // why the value is not available
  bool sizes = false;        // the sign is arbitrary: compare absolute values
};

// Returns a number that is not available, for this reason.
OurNumber no_number(std::string why);

// Evaluates a published quantity on our run. A name of named_columns(), or any column of qk (PC0),
// rotated and head_metrics, is the mean over heads. Suffixes (_std, _median, _p25, _p75,
// _depth_0.3, _heads) and prefixes (layer_16_, mean_, median_, share_positive_, class_) select
// another statistic.
OurNumber our_number(const PublishedNumber& published, RunNumbers& run);

// Quantities that compare_runs() compares: means, and medians of ratios.
const std::vector<std::string>& compared_quantities();
OurNumber our_statistic(const std::string& quantity, RunNumbers& run);

// Published numbers that a head has several of.

// Unweighted mean over the profile bins whose centre lies in the published bin, then over heads.
OurNumber profile_number(const PublishedNumber& published, RunNumbers& run);
// Value of the profile bin that contains the centre of the published bin, mean over heads.
OurNumber line_number(const PublishedNumber& published, RunNumbers& run);
// Value of the same heat-map cell, mean over heads.
OurNumber heatmap_number(const PublishedNumber& published, RunNumbers& run);
// Weight of one dimension, mean over heads.
OurNumber weight_number(const PublishedNumber& published, RunNumbers& run);
// One component of the PCA of the queries or keys of one head.
OurNumber component_number(const PublishedNumber& published, RunNumbers& run);
// Share of the complement's variance on one pair of axes of one head.
OurNumber complement_share(RunNumbers& run, std::int64_t layer, std::int64_t head,
                           std::int64_t pair);

}  // namespace qkscope
