#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/io/folder.h"
#include "base/tables/csv.h"
#include "study/compare/run_tables.h"

namespace qkscope {
namespace {

constexpr std::string_view kEnding = ".csv";
constexpr std::string_view kDigits = "0123456789";

// Returns the CSV files of published numbers by set name; for equal names, the first folder wins.
std::map<std::string, std::string> published_number_files() {
  std::map<std::string, std::string> files;
  for (const auto& data : shared_data_folders()) {
    const auto folder = data + "/published";
    if (!is_folder(folder)) continue;
    for (const auto& name : entry_names(folder))
      if (name.ends_with(kEnding))
        files.emplace(name.substr(0, name.size() - kEnding.size()),
                      fmt::format("{}/{}", folder, name));
  }
  return files;
}

// Returns the path of an installed set, or `name` itself if it is the path of a CSV file.
std::string find_published_file(const std::string& name) {
  if (name.ends_with(kEnding) || name.find('/') != std::string::npos) return name;
  const auto files = published_number_files();
  if (files.empty())
    reject(
        "the published numbers are not there; looked in {}. Set QKSCOPE_DATA to the folder "
        "share/qkscope of an installation",
        fmt::join(shared_data_folders(), " and "));
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  const auto known = published_sets();
  reject("--published {}: known {} {}, and files of your own, whose names end in .csv",
         quote_text(name), known.size() == 1 ? "is" : "are", fmt::join(known, ", "));
}

// A CSV file with access to fields by row and column name.
class PublishedCsvFile {
 public:
  explicit PublishedCsvFile(const std::string& path)
      : path_(path), table_(read_csv_text_columns(path)) {
    if (table_.rows() == 0) reject("{}: holds no numbers", path_);
  }

  std::size_t row_count() const { return static_cast<std::size_t>(table_.rows()); }
  bool has_column(const std::string& column) const { return table_.find(column) != nullptr; }
  std::string first_existing_column(const std::vector<std::string>& names) const {
    for (const auto& name : names)
      if (has_column(name)) return name;
    return "";
  }
  const std::string& path() const { return path_; }

  std::string text_at(std::size_t row, const std::string& column) const {
    const auto* found = table_.find(column);
    return found == nullptr ? "" : found->texts[row];
  }
  std::string required_text_at(std::size_t row, const std::string& column) const {
    auto field = text_at(row, column);
    if (field.empty()) reject("{}: {} is empty", row_label(row), column);
    return field;
  }
  // Returns NaN for an empty field. Throws a bad-input error if the field is not a number.
  double number_at(std::size_t row, const std::string& column) const {
    const auto field = text_at(row, column);
    const double value = parse_double_or_nan(field);
    if (!field.empty() && !std::isfinite(value))
      reject("{}: {}: found {}, expected a number", row_label(row), column, quote_text(field));
    return value;
  }
  std::int64_t integer_at(std::size_t row, const std::string& column) const {
    return parse_integer(text_at(row, column), row_label(row) + ": " + column);
  }
  std::string row_label(std::size_t row) const {
    return fmt::format("{}: row {}", path_, row + 2);  // the header is row 1
  }

 private:
  std::string path_;
  Table table_;
};

// Standard error of a published number, from the column `uncertainty` and from rounding. An error
// uniform within half a unit of the last digit has a standard deviation of 0.5 / sqrt(3) units.
double published_standard_error(const PublishedCsvFile& csv, std::size_t row, double value,
                                const std::string& column) {
  const auto text = csv.text_at(row, "value_text");
  const auto uncertainty = csv.text_at(row, "uncertainty");
  const double read = uncertainty.empty() ? 0.0 : parse_uncertainty(uncertainty);
  if (!(read >= 0) || std::isinf(read))
    reject("{}: uncertainty: found {}, expected a number or a fraction", csv.row_label(row),
           quote_text(uncertainty));
  double rounding = rounding_error_bound(text, value);
  if (std::isnan(rounding) && uncertainty.empty())
    rounding = rounding_error_bound(csv.text_at(row, column), value);
  if (std::isnan(rounding)) return uncertainty.empty() ? kNan : read;
  return std::hypot(read, rounding / std::sqrt(3.0));
}

// Reads the fields common to all CSV files of published numbers with a column `value`.
PublishedNumber read_number_row(const PublishedCsvFile& csv, std::size_t row) {
  PublishedNumber number;
  number.value = csv.number_at(row, "value");
  number.text = csv.text_at(row, "value_text");
  number.kind = csv.text_at(row, "kind");
  number.source = csv.text_at(row, "source");
  number.preferred = csv.text_at(row, "preferred") != "no";
  number.se =
      number.kind == "setting" ? 0.0 : published_standard_error(csv, row, number.value, "value");
  return number;
}

// Reads files with one metric per row: smollm3.csv, models.csv, pooled.csv.
void read_metric_rows(const PublishedCsvFile& csv, const std::string& subject,
                      const std::string& metric, PublishedNumbers& set) {
  for (std::size_t row = 0; row < csv.row_count(); ++row) {
    auto number = read_number_row(csv, row);
    number.model = csv.required_text_at(row, subject);
    number.metric = csv.required_text_at(row, metric);
    if (std::isnan(number.value) && number.text.empty())
      reject("{}: the value is missing, expected a number", csv.row_label(row));
    set.numbers.push_back(std::move(number));
  }
}

// Returns the two bins of a published difference, such as the drop from the first to the last bin.
std::optional<std::pair<PositionInterval, PositionInterval>> parse_difference_between_bins(
    const std::string& table, const std::string& bin) {
  if (table == "length_bins" && bin == "total drop")
    return std::pair(PositionInterval{65536, 131072, false}, PositionInterval{0, 8192, false});
  if (table == "quintiles" && bin == "AP_drop")
    return std::pair(PositionInterval{0, 0.2, true}, PositionInterval{0.8, 1, true});
  if (table == "layer_double_deciles" && bin == "recovery")
    return std::pair(PositionInterval{0.6, 0.8, true}, PositionInterval{0.4, 0.6, true});
  return {};
}

PublishedNumber read_profile_row(const PublishedCsvFile& csv, std::size_t row) {
  auto number = read_number_row(csv, row);
  const auto table = csv.text_at(row, "table");
  const auto bin = csv.text_at(row, "bin");
  number.model = csv.text_at(row, "subject");
  number.metric = table + " " + bin;
  number.bin = {csv.number_at(row, "bin_low"), csv.number_at(row, "bin_high"), false};
  constexpr std::string_view kLayer = " layer ";  // as in the subject "qwen3-4b layer 16"
  if (const auto at = number.model.find(kLayer); at != std::string::npos) {
    number.layer = parse_integer(number.model.substr(at + kLayer.size()),
                                 csv.row_label(row) + ": the layer in subject");
    number.metric += fmt::format(" layer {}", *number.layer);
    number.model.resize(at);
  }
  const bool edges = number.bin.low < number.bin.high;
  if (const auto difference = parse_difference_between_bins(table, bin)) {
    number.value_kind = PublishedNumberKind::profile;
    number.bin = difference->first;
    number.minus = difference->second;
  } else if (table == "heatmap") {
    constexpr std::string_view kQuery = "query distance ";
    const auto at = bin.find(kQuery);
    if (at == std::string::npos || !edges)
      reject("{}: expected the edges of the keys' distance, and 'query distance N' in bin",
             csv.row_label(row));
    number.value_kind = PublishedNumberKind::heatmap;
    number.index = parse_integer(bin.substr(at + kQuery.size()), csv.row_label(row) + ": bin");
  } else if (table == "component_weights") {
    number.value_kind = PublishedNumberKind::weight;
    number.index = csv.integer_at(row, "bin_low");
  } else if (edges) {
    number.value_kind =
        table == "profile_mean_line" ? PublishedNumberKind::line : PublishedNumberKind::profile;
    number.bin.fraction = number.bin.high <= 1.0;
  }
  return number;  // without bin edges: remains a metric that qkscope does not compute
}

// Reads published PCA components of individual heads (small_models.csv).
void read_pca_components(const PublishedCsvFile& csv, PublishedNumbers& set) {
  for (std::size_t row = 0; row < csv.row_count(); ++row) {
    PublishedNumber number;
    number.value_kind = PublishedNumberKind::components;
    number.model = csv.text_at(row, "run");
    number.kind = "printed";
    number.source = csv.text_at(row, "source");
    number.layer = csv.integer_at(row, "layer");
    number.head = csv.integer_at(row, "head");
    number.index = csv.integer_at(row, "pca_dim");
    const auto side = csv.text_at(row, "kind");
    if (side != "q" && side != "k")
      reject("{}: kind: found {}, expected q or k", csv.row_label(row), quote_text(side));
    number.side = side[0];
    for (const char* column : {"correlation", "explained_variance_ratio"}) {
      number.value = csv.number_at(row, column);
      number.text = csv.text_at(row, column);
      number.se = published_standard_error(csv, row, number.value, column);
      number.metric = fmt::format("{} L{:02}H{:02}{} pc{}", column, *number.layer, number.head,
                                  number.side, number.index);
      set.numbers.push_back(number);
    }
  }
}

// An unsigned decimal number as printed in a paper.
struct PrintedNumber {
  double value = 0;
  double unit = 1;  // value of one unit of the last digit
};

// Parses a number ("3,239", "0.60", "3.19e-3") and removes it from the beginning of the text.
PrintedNumber consume_printed_number(std::string_view& text) {
  const auto is_digit_at = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string digits;
  for (; is_digit_at(0) || (text.starts_with(',') && is_digit_at(1)); text.remove_prefix(1))
    if (text[0] != ',') digits += text[0];
  int decimals = 0;
  if (text.starts_with('.') && is_digit_at(1)) {
    while (is_digit_at(static_cast<std::size_t>(decimals) + 1)) ++decimals;
    digits += text.substr(0, static_cast<std::size_t>(decimals) + 1);
    text.remove_prefix(static_cast<std::size_t>(decimals) + 1);
  }
  int exponent = 0;
  if (text.starts_with('e')) {
    const char* begin = text.data() + (text.starts_with("e+") ? 2 : 1);
    const auto parsed = std::from_chars(begin, text.data() + text.size(), exponent);
    if (parsed.ec == std::errc()) text = {parsed.ptr, text.data() + text.size()};
  }
  return {parse_double_or_nan(digits) * std::pow(10.0, exponent),
          std::pow(10.0, exponent - decimals)};
}

bool equal_within_rounding(double a, double b) {
  return std::fabs(a - b) <= 1e-6 * std::fabs(b);
}

// Returns the factor between the printed number and the value: 1, a power of ten (per cent,
// "x10^3", an exponent after a range) or 1024 ("256K"). Returns NaN for any other factor.
double printed_number_scale(const PrintedNumber& printed, double value, std::string_view text) {
  if (value == 0 && printed.value == 0)
    return text.find('%') != std::string_view::npos         ? 0.01
           : text.find("(x10^3)") != std::string_view::npos ? 1e-3
                                                            : 1.0;
  if (value == 0 || printed.value == 0) return kNan;
  const double scale = std::fabs(value) / printed.value;
  const double power = std::pow(10.0, std::round(std::log10(scale)));
  return equal_within_rounding(scale, power) || equal_within_rounding(scale, 1024.0) ? scale : kNan;
}

}  // namespace

std::vector<std::string> PublishedNumbers::model_names() const {
  std::vector<std::string> names;
  for (const auto& number : numbers)
    if (std::ranges::find(names, number.model) == names.end()) names.push_back(number.model);
  return names;
}

PublishedNumbers read_published_numbers(const std::string& name) {
  const PublishedCsvFile csv(find_published_file(name));
  PublishedNumbers set;
  set.file = csv.path();
  const auto metric = csv.first_existing_column({"quantity", "measure"});
  const auto subject = csv.first_existing_column({"checkpoint", "model", "subject"});
  const bool values = csv.has_column("value");
  if (csv.has_column("pca_dim") && csv.has_column("correlation")) {
    read_pca_components(csv, set);
  } else if (values && csv.has_column("table") && csv.has_column("bin") && !subject.empty()) {
    for (std::size_t row = 0; row < csv.row_count(); ++row)
      set.numbers.push_back(read_profile_row(csv, row));
  } else if (values && !metric.empty() && !subject.empty()) {
    read_metric_rows(csv, subject, metric, set);
  } else if (values && !metric.empty() && csv.has_column("scope")) {
    set.pooled = true;
    read_metric_rows(csv, "scope", metric, set);
  } else if (values && csv.has_column("benchmark")) {
    reject("{}: holds scores of benchmarks; they are not what qkscope measures", set.file);
  } else {
    reject(
        "{}: not a set of published numbers: expected the columns checkpoint (or model), quantity "
        "and value; found {}",
        set.file, fmt::join(read_csv_header(set.file), ", "));
  }
  std::set<std::tuple<std::string, std::string, std::string, std::string>> seen;
  for (const auto& number : set.numbers)
    if (!seen.emplace(number.model, number.metric, number.source, number.text).second)
      reject("{}: {} of {} is there twice{}", set.file, number.metric, number.model,
             number.source.empty() ? "" : " from one source");
  return set;
}

std::vector<std::string> published_sets() {
  return translate_exceptions([] { return collect_map_keys(published_number_files()); });
}

double rounding_error_bound(std::string_view text, double value) {
  if (text.starts_with("not printed")) return kNan;
  const double units = text.find('~') == std::string_view::npos ? 0.5 : 1.0;
  std::vector<PrintedNumber> numbers;
  for (auto rest = text; rest.find_first_of(kDigits) != std::string_view::npos;) {
    rest.remove_prefix(rest.find_first_of(kDigits));
    numbers.push_back(consume_printed_number(rest));
  }
  for (const auto& printed : numbers) {
    const double scale = printed_number_scale(printed, value, text);
    if (!std::isnan(scale)) return units * printed.unit * scale;
  }
  if (numbers.size() == 2 &&
      std::fabs(numbers[0].value - numbers[1].value - value) < 1e-6 * std::fabs(numbers[0].value))
    return units * std::hypot(numbers[0].unit, numbers[1].unit);
  return kNan;
}

double parse_uncertainty(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return parse_double_or_nan(text);
  return parse_double_or_nan(text.substr(0, slash)) / parse_double_or_nan(text.substr(slash + 1));
}

}  // namespace qkscope
