// Statistics over the heads of a run.
#pragma once

#include <string>
#include <vector>

#include "study/compare/run_numbers.h"

namespace qkscope {

struct Statistic {
  enum class Kind {
    mean,
    deviation,
    quantile,
    maximum,
    share_above,
    heads_below,
    heads_with,  // a number other than 0
    heads,
    depth,
  };
  Kind kind = Kind::mean;
  double at = 0;  // the quantile, the bound, or where the depth bin begins
};

std::string shown(const Statistic& statistic);  // "mean of "

// NaN where there are too few heads for it.
double statistic_of(const std::vector<HeadNumber>& heads, const Statistic& statistic);

}  // namespace qkscope
