// What the report's page shows of heads, as JSON with packed numbers.
#pragma once

#include <string>

#include "analysis/figures/results.h"
#include "base/io/json.h"

namespace qkscope {

// Numbers of all heads. Columns are little-endian arrays in base64, one entry per head:
// {"count", "run", "layer", "head", "k_head", "rope", "class", "measures": [{"name", "data"}],
//  "profile": {"start", "position", "ap", "error"},
//  "scatter": {"start", "queries", "low", "high", "last_positions", "components"}}.
struct ReportHeads {
  Json json;
  // Points of all heads in base64: per point 9 bytes, which are its position (3 bytes, the lowest
  // first) and the coordinates on two components, a, b, c0, c1 between the head's `low` and `high`
  // (0 to 254; 255 where there is none).
  std::string points;
};

ReportHeads report_heads(const Results& results);

}  // namespace qkscope
