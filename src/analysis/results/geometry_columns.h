// The single list of the columns of the table `geometry`. The table, means over heads, head maps,
// the report, `pool` and `compare` all use it.
#pragma once

#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// One line of geometry_columns.txt; the file describes the fields.
struct GeometryColumn {
  std::string name;
  std::string question;  // name of a GeometryQuestion
  std::string source;    // "moments", "rotary", "attention", "rows" or "weights"
  std::string scale;     // colours of the head map
  std::string meaning;   // one sentence, without a full stop
  bool has_error;        // a column NAME_se follows
  bool is_null;          // a null of another column: no head map
};

const std::vector<GeometryColumn>& geometry_columns();

// Heading of a group of geometry columns, phrased as a question.
struct GeometryQuestion {
  std::string name;   // "rank"
  std::string title;  // a question
  std::string sentence;
};
const std::vector<GeometryQuestion>& geometry_questions();

// Returns the reason why a geometry field of the head is empty.
std::string missing_geometry_reason(const GeometryColumn& column, const AnalysisRun& run,
                                    const HeadReport& head);

}  // namespace qkscope
