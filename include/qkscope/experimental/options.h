// The table of analysis options. The command line, the `analysis:` section of a sweep file, the
// Python package and docs/reference/analysis-options.md are generated from this table, so a new
// option needs only a new row.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "qkscope/version.h"

namespace qkscope {

// The type of an option's value, with the alternative of OptionValue that holds it.
enum class OptionKind {
  flag,    // bool
  count,   // uint64; a string where one of `words` is given instead of a number
  number,  // double
  choice,  // string: one of `words`
  text,    // string: a name, a path or an address
  counts,  // list of non-negative integers
  layers,  // list of layer numbers
  heads,   // list of query heads
};
using OptionValue = std::variant<bool, std::uint64_t, double, std::string,
                                 std::vector<std::int64_t>, std::vector<HeadId>>;

// The part of an analysis that an option configures. Sweep files accept the options of rows, pca,
// rotation, plasticity and geometry.
enum class OptionGroup { capture, rows, pca, rotation, plasticity, geometry, statistics };

// One option of an analysis.
struct AnalysisOption {
  std::string_view name;  // Python keyword and YAML key: "max_omega"
  OptionGroup group;
  OptionKind kind;
  std::string_view help;
  OptionValue fallback = {};  // value when the option is not given
  // Inclusive bounds of a count, or of each element of a list.
  std::uint64_t least = 0;
  std::uint64_t most = 1 << 20;
  // Inclusive bounds of a number.
  double lower = 0;
  double upper = 1;
  std::size_t length = 0;                    // exact length of a list; 0: any
  std::vector<std::string_view> words = {};  // of a choice, in the order of its enum's values
  // Stores a valid value in the field of `options` that the option sets, and returns the value of
  // that field.
  std::function<void(AnalyzeOptions& options, const OptionValue& value)> store = {};
  std::function<OptionValue(const AnalyzeOptions& options)> load = {};

  // Returns the option as typed: "--max-omega", or "--no-errors" for a flag that is on by default.
  QKSCOPE_API std::string command_line_name() const;
  // Returns the default value as text; "" if the default is an empty list or not a fixed value.
  QKSCOPE_API std::string default_text() const;
  // Returns a description of the allowed values: "a whole number from 1 to 1000".
  QKSCOPE_API std::string expected() const;
  // Returns true if `value` has the option's type and is within its bounds.
  QKSCOPE_API bool allows(const OptionValue& value) const;
};

// Returns all options, in the order of the documentation.
QKSCOPE_API const std::vector<AnalysisOption>& analysis_options();

// Returns the heading of a group in help texts and documentation: "PCA", "Rotation".
QKSCOPE_API std::string_view title(OptionGroup group);

// Returns the content of docs/reference/analysis-options.md.
QKSCOPE_API std::string analysis_options_markdown();

}  // namespace qkscope
