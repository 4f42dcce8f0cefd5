// A correlation, as the analyses give it.
#pragma once

namespace qkscope {

struct Correlation {
  double r = 0;        // Pearson; NaN when one side does not vary
  double p = 0;        // two-sided; 0 where it underflows
  double log10_p = 0;  // exact where p underflows
};

}  // namespace qkscope
