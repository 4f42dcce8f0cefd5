// Published numbers and benchmark scores, from CSV files in the data folder or given by the user.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/numbers.h"
#include "base/core/text.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

// A range of query positions, in tokens or as fractions of the range that has values.
struct PublishedProfileBin {
  double low = 0;
  double high = 0;
  bool fraction = false;  // false: tokens
};

struct PublishedNumber {
  enum class PublishedValueKind {
    quantity,    // statistic over the heads of a run, selected by the name of the quantity
    profile,     // mean of the profile over `bin`, minus that over `minus` if set
    line,        // profile value at the centre of `bin`
    heatmap,     // heat-map cell: `bin` is the key distance, `index` the query distance
    weight,      // component weight of dimension `index`
    components,  // PCA component `index` of the queries or keys (`side`) of one head
  };
  std::string subject;   // checkpoint, model or scope
  std::string quantity;  // for a profile: table and bin, "deciles 0-10%"
  PublishedValueKind value_kind = PublishedValueKind::quantity;
  double value = 0;  // NaN if no number was printed
  double se = 0;     // standard error from rounding and from reading a figure; NaN if unknown
  std::string text;  // the number as printed
  std::string kind;
  std::string source;
  bool preferred = true;

  PublishedProfileBin bin;
  std::optional<PublishedProfileBin> minus;
  std::optional<std::int64_t> layer;
  std::int64_t head = 0;
  char side = 'q';
  std::int64_t index = 0;
};

struct PublishedNumbers {
  std::string file;
  bool pooled = false;  // numbers over several runs; subjects are scopes ("11 models, 3239 heads")
  std::vector<PublishedNumber> numbers;  // in file order

  std::vector<std::string> subjects() const;  // distinct, in file order
};

// Reads a set of published numbers. `name` is a set (published/NAME.csv of the first data folder
// that has it) or the path of a CSV file (ends in .csv or contains a slash).
// share/published/README.md describes the columns. Throws a bad-input error for an unknown name,
// with the known names, and for a bad row, with file and row.
PublishedNumbers read_published_numbers(const std::string& name);

// Returns the rounding error of a number as a paper prints it: half a unit of the last printed
// digit, in the unit of `value`. Examples: 0.0005 for "0.585", 0.005 for "34%" (value 0.34),
// 0.00005 for "19.4 (x10^3)" (value 0.0194). Approximate values ("~0.29") have one unit,
// differences ("0.61 - 0.57") the root sum of squares. Returns NaN if `text` does not contain the
// value or says "not printed".
double printed_rounding_error(std::string_view text, double value);

// Parses a number ("0.002") or a fraction ("1/300"); NaN for any other text.
double parse_uncertainty(std::string_view text);

// Parses text that consists of exactly one number; NaN for any other text.
inline double number_or_nan(std::string_view text) {
  return parse_number<double>(text).value_or(kNan);
}

struct BenchmarkScore {
  std::string name;                      // "LongBench-Pro / non-thinking / all / Overall"
  std::map<std::string, double> models;  // score by label
};

// Reads a CSV file of scores: long format (columns metric and value) or one column per score. The
// column `by` holds the labels of the models.
std::vector<BenchmarkScore> read_benchmark_results(const std::string& file, const std::string& by);

}  // namespace qkscope
