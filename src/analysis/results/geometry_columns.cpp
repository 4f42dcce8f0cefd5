#include "analysis/results/geometry_columns.h"

#include <algorithm>

#include "analysis/results/row_builder.h"
#include "base/core/project.h"
#include "base/core/text.h"

namespace qkscope {

namespace embedded {
extern const char geometry_columns[];  // the file geometry_columns.txt
}

namespace {

// Splits the lines of geometry_columns.txt that describe columns (or `questions`) into fields.
std::vector<std::vector<std::string>> read_lines(bool questions) {
  std::vector<std::vector<std::string>> lines;
  for (const auto& line : split(embedded::geometry_columns, '\n')) {
    if (line.empty() || line.starts_with('#') || line.starts_with('?') != questions) continue;
    lines.push_back(split(line.substr(questions ? 1 : 0), '|'));
    std::ranges::transform(lines.back(), lines.back().begin(), trim_white_space);
  }
  return lines;
}

}  // namespace

const std::vector<GeometryColumn>& geometry_columns() {
  static const auto kColumns = project(read_lines(false), [](const auto& fields) {
    const auto has_flag = [&](const char* flag) {
      return fields[4].find(flag) != std::string::npos;
    };
    return GeometryColumn{fields[0], fields[1],         fields[2],       fields[3],
                          fields[5], has_flag("error"), has_flag("null")};
  });
  return kColumns;
}

const std::vector<GeometryQuestion>& geometry_questions() {
  static const auto kQuestions = project(read_lines(true), [](const auto& fields) {
    return GeometryQuestion{fields[0], fields[1], fields[2]};
  });
  return kQuestions;
}

std::string missing_geometry_reason(const GeometryColumn& column, const AnalysisRun& run,
                                    const HeadReport& head) {
  if (column.source == "weights") return "needs_weights";
  if (column.source == "rows" && run.from_sums) return "needs_rows";
  if (column.source != "rows" && !run.from_sums) return "needs_statistics";
  const bool of_frequencies =
      column.source == "rotary" || column.name.starts_with("distance_preference");
  if (of_frequencies && head.rope == RopeUse::nope) return "no_rope";
  if (column.source == "attention") return "needs_attention";
  return run.from_sums ? "not_in_statistics" : undefined_head_reason(head);
}

}  // namespace qkscope
