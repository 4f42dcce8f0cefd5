#include "analysis/results/geometry_columns.h"

#include <fmt/format.h>

#include "analysis/results/row_builder.h"
#include "base/core/text.h"

namespace qkscope {

namespace embedded {
extern const char geometry_columns[];  // the file geometry_columns.txt
}

namespace {

// Parses one line of geometry_columns.txt.
GeometryColumn parse_column(const std::string& line) {
  auto fields = split(line, '|');
  std::ranges::transform(fields, fields.begin(), trim_white_space);
  return {.name = fields[0],
          .question = fields[1],
          .source = fields[2],
          .scale = fields[3],
          .has_error = fields[4].find("error") != std::string::npos,
          .is_null = fields[4].find("null") != std::string::npos,
          .meaning = fields[5]};
}

}  // namespace

const std::vector<GeometryColumn>& geometry_columns() {
  static const std::vector<GeometryColumn> kColumns = [] {
    std::vector<GeometryColumn> columns;
    for (const auto& line : split(embedded::geometry_columns, '\n'))
      if (!line.empty() && !line.starts_with('#')) columns.push_back(parse_column(line));
    return columns;
  }();
  return kColumns;
}

const std::vector<GeometryQuestion>& geometry_questions() {
  static const std::vector<GeometryQuestion> kQuestions = {
      {"rank", "How many directions does a head use?",
       "Ranks of the covariance of queries, keys and values, of the scores and of the weights: a "
       "rank near 1 is one direction, a rank near the head dimension is an even spread."},
      {"frequency", "Which RoPE frequencies and dimensions carry the score?",
       "Concentrated pairs point the same way in every token; slow pairs barely turn within a "
       "text; massive dimensions are far longer than the mean."},
      {"distance", "Does the score depend on distance or on content?",
       "What mean query and mean key prefer, how measured attention decays with distance, and "
       "which share of the scores distance, key and query explain."},
      {"sinks", "How often is attention parked on the first token?",
       "Share of queries that give the first token more than half of their attention."}};
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
