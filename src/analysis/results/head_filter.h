// Which heads of a capture are analysed.
#pragma once

#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// The query heads that options.layers and options.heads leave, ascending. A layer or head that the
// capture does not have is bad input that says what there is.
std::vector<HeadId> chosen_queries(const CaptureIndex& index, const AnalyzeOptions& options);

}  // namespace qkscope
