// The columns of the table `geometry`, declared once: the table, means over heads, head maps, the
// report, `pool` and `compare` all read this list.
#pragma once

#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// Input that a column is computed from.
enum class GeometrySource {
  moments,    // statistics of group A; ranks also from the rows of a capture
  rotary,     // statistics of group A, layers with RoPE
  attention,  // statistics of groups B and C
  rows,       // a capture
  weights,    // the checkpoint
};

// Colour range of a column's head map.
enum class HeadMapScale { to_one, to_largest, signed_to_one, around_zero };

struct GeometryColumn {
  std::string name;
  const char* question;  // name of a GeometryQuestion
  GeometrySource source;
  std::string meaning;  // one sentence, without a full stop
  HeadMapScale scale = HeadMapScale::to_largest;
  bool has_error = false;  // a column NAME_se follows
  bool is_null = false;    // a null of another column: no head map
};

const std::vector<GeometryColumn>& geometry_columns();

// Heading of a group of geometry columns, phrased as a question.
struct GeometryQuestion {
  const char* name;   // "rank"
  const char* title;  // a question
  const char* sentence;
};
const std::vector<GeometryQuestion>& geometry_questions();

// Returns why a field of the head is empty.
std::string missing_geometry_reason(const GeometryColumn& column, const AnalysisRun& run,
                                    const HeadReport& head);

}  // namespace qkscope
