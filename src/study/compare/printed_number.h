// Numbers as papers print them: what their digits leave open.
#pragma once

#include <string_view>

namespace qkscope {

// Half a unit of the last printed digit, in the unit of `value`: "0.585" leaves 0.0005 open, "34%"
// (value 0.34) 0.005, "19.4 (x10^3)" (value 0.0194) 0.00005. "~0.29" leaves a whole unit open, and
// "0.61 - 0.57" what both leave open together. NaN where `text` does not print this value, or says
// "not printed".
double printed_rounding(std::string_view text, double value);

// "0.002" or "1/300"; NaN where it is neither.
double parse_uncertainty(std::string_view text);

}  // namespace qkscope
