// Rounding error of numbers as papers print them.
#pragma once

#include <string_view>

namespace qkscope {

// Returns half a unit of the last printed digit, in the unit of `value`: 0.0005 for "0.585", 0.005
// for "34%" (value 0.34), 0.00005 for "19.4 (x10^3)" (value 0.0194). Approximate values ("~0.29")
// have one unit, differences ("0.61 - 0.57") the root sum of squares. Returns NaN if `text` does
// not contain the value or says "not printed".
double printed_rounding(std::string_view text, double value);

// Parses a number ("0.002") or a fraction ("1/300"); NaN for any other text.
double parse_uncertainty(std::string_view text);

}  // namespace qkscope
