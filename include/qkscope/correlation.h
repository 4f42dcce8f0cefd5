// A Pearson correlation coefficient with its p value.
#pragma once

namespace qkscope {

struct Correlation {
  double r = 0;        // Pearson's r; NaN if either variable is constant
  double p = 0;        // two-sided; 0 where it underflows
  double log10_p = 0;  // accurate even where p underflows
};

}  // namespace qkscope
