// report.html: one self-contained page that works without a network.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/figures/results.h"
#include "base/core/text.h"
#include "base/io/json.h"

namespace qkscope {

// Data of all heads for the page's JavaScript.
struct ReportHeadData {
  // Columns are little-endian arrays in base64 with one entry per head:
  // {"count", "run", "layer", "head", "classes", "measures": [{"name", "data"}],
  //  text columns {"names", "codes"}: "rope", "attention", "class", "class_axis", "gaussian",
  //  "profile": {"start", "position", "ap", "ap_free", "error"},
  //  "scatter": {"start", "queries", "low", "high", "last_positions", "components", and "tokens"
  //  and "token" in results with token texts}}.
  Json json;
  std::string points;  // points of all heads in base64, see PackedScatterPoints
};

ReportHeadData collect_report_head_data(const AnalysisResults& results);

// Encodes an array of numbers as base64; unpack() in data.js decodes it.
template <typename T>
std::string encode_base64(const std::vector<T>& values) {
  return encode_base64(std::as_bytes(std::span(values)));
}
// Serialises JSON for a <script> element; escapes '<', so that no text can close the element.
std::string escape_for_script(const Json& json);

// Replaces each {{name}} in the page in one pass; does not look for names in inserted text.
std::string fill_placeholders(std::string_view page,
                              const std::vector<std::pair<std::string, std::string>>& parts);

// Throws a bad-input error unless both results have a single run, their models have equal numbers
// of layers and query heads, and some head is in both.
void check_same_heads(const AnalysisResults& first, const AnalysisResults& second);

}  // namespace qkscope
