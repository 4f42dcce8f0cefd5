// What a published number is in our tables.
#pragma once

#include <string>
#include <vector>

#include "study/compare/published.h"
#include "study/compare/run_numbers.h"

namespace qkscope {

// The numbers of heads that have a name of their own, in the order in which they are shown.
const std::vector<HeadColumn>& named_columns();

struct OurNumber {
  double value = 0;     // NaN where there is none
  double se = 0;        // NaN where it is not known
  std::string column;   // what it is the mean (deviation, quartile, ...) of
  std::string missing;  // why there is none
  bool sizes = false;   // ours is without its sign: compare it with the published one's size
};

OurNumber no_number(std::string why);

// By the definition of the quantity: a name of named_columns() or any column of the tables qk (of
// PC0), rotated and head_metrics is the mean over heads; endings make it another statistic (_std,
// _median, _p25, _p75, _depth_0.3, _heads), as do beginnings (layer_16_, mean_, median_,
// share_positive_, class_).
OurNumber our_number(const PublishedNumber& published, RunNumbers& run);

// What two runs are compared by: means, and the median of a ratio.
const std::vector<std::string>& compared_quantities();
OurNumber our_statistic(const std::string& quantity, RunNumbers& run);

}  // namespace qkscope
