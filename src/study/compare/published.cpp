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

// Files of published numbers by set name. Earlier data folders take precedence.
std::map<std::string, std::string> published_files() {
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
  const auto files = published_files();
  if (files.empty())
    bad_input(
        "the published numbers are not there; looked in {}. Set QKSCOPE_DATA to the folder "
        "share/qkscope of an installation",
        fmt::join(shared_data_folders(), " and "));
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  const auto known = published_sets();
  bad_input("--published {}: known {} {}, and files of your own, whose names end in .csv",
            quote_text(name), known.size() == 1 ? "is" : "are", fmt::join(known, ", "));
}

// A CSV file with access to fields by row and column name.
class PublishedRows {
 public:
  explicit PublishedRows(const std::string& file) : file_(file), table_(read_csv_as_text(file)) {
    if (table_.rows() == 0) bad_input("{}: holds no numbers", file_);
  }

  std::size_t count() const { return static_cast<std::size_t>(table_.rows()); }
  bool has(const std::string& column) const { return table_.find(column) != nullptr; }
  std::string first_existing_column(const std::vector<std::string>& names) const {
    for (const auto& name : names)
      if (has(name)) return name;
    return "";
  }
  const std::string& file() const { return file_; }

  std::string text(std::size_t row, const std::string& column) const {
    const auto* found = table_.find(column);
    return found == nullptr ? "" : found->texts[row];
  }
  std::string required_text(std::size_t row, const std::string& column) const {
    auto field = text(row, column);
    if (field.empty()) bad_input("{}: {} is empty", where(row), column);
    return field;
  }
  // Returns NaN for an empty field. Throws a bad-input error if the field is not a number.
  double number(std::size_t row, const std::string& column) const {
    const auto field = text(row, column);
    const double value = number_or_nan(field);
    if (!field.empty() && !std::isfinite(value))
      bad_input("{}: {}: found {}, expected a number", where(row), column, quote_text(field));
    return value;
  }
  std::int64_t integer(std::size_t row, const std::string& column) const {
    return parse_integer(text(row, column), where(row) + ": " + column);
  }
  std::string where(std::size_t row) const {
    return fmt::format("{}: row {}", file_, row + 2);  // the header is row 1
  }

 private:
  std::string file_;
  Table table_;
};

// Standard error of a published number, from the column `uncertainty` and from rounding. A uniform
// error of half a unit of the last digit has the standard deviation 0.5 / sqrt(3) units.
double published_standard_error(const PublishedRows& rows, std::size_t row, double value,
                                const std::string& column) {
  const auto text = rows.text(row, "value_text");
  const auto uncertainty = rows.text(row, "uncertainty");
  const double read = uncertainty.empty() ? 0.0 : parse_uncertainty(uncertainty);
  if (!(read >= 0) || std::isinf(read))
    bad_input("{}: uncertainty: found {}, expected a number or a fraction", rows.where(row),
              quote_text(uncertainty));
  double rounding = printed_rounding_error(text, value);
  if (std::isnan(rounding) && uncertainty.empty())
    rounding = printed_rounding_error(rows.text(row, column), value);
  if (std::isnan(rounding)) return uncertainty.empty() ? kNan : read;
  return std::hypot(read, rounding / std::sqrt(3.0));
}

// Reads the fields that all files with a column `value` have.
PublishedNumber read_common_fields(const PublishedRows& rows, std::size_t row) {
  PublishedNumber number;
  number.value = rows.number(row, "value");
  number.text = rows.text(row, "value_text");
  number.kind = rows.text(row, "kind");
  number.source = rows.text(row, "source");
  number.preferred = rows.text(row, "preferred") != "no";
  number.se =
      number.kind == "setting" ? 0.0 : published_standard_error(rows, row, number.value, "value");
  return number;
}

// Reads files with one quantity per row: smollm3.csv, models.csv, pooled.csv.
void read_quantities(const PublishedRows& rows, const std::string& subject,
                     const std::string& quantity, PublishedNumbers& set) {
  for (std::size_t row = 0; row < rows.count(); ++row) {
    auto number = read_common_fields(rows, row);
    number.subject = rows.required_text(row, subject);
    number.quantity = rows.required_text(row, quantity);
    if (std::isnan(number.value) && number.text.empty())
      bad_input("{}: the value is missing, expected a number", rows.where(row));
    set.numbers.push_back(std::move(number));
  }
}

// Returns the two bins of a published difference, such as the drop from the first to the last bin.
std::optional<std::pair<PublishedProfileBin, PublishedProfileBin>> parse_difference_between_bins(
    const std::string& table, const std::string& bin) {
  if (table == "length_bins" && bin == "total drop")
    return std::pair(PublishedProfileBin{65536, 131072, false},
                     PublishedProfileBin{0, 8192, false});
  if (table == "quintiles" && bin == "AP_drop")
    return std::pair(PublishedProfileBin{0, 0.2, true}, PublishedProfileBin{0.8, 1, true});
  if (table == "layer_double_deciles" && bin == "recovery")
    return std::pair(PublishedProfileBin{0.6, 0.8, true}, PublishedProfileBin{0.4, 0.6, true});
  return {};
}

PublishedNumber read_profile_row(const PublishedRows& rows, std::size_t row) {
  auto number = read_common_fields(rows, row);
  const auto table = rows.text(row, "table");
  const auto bin = rows.text(row, "bin");
  number.subject = rows.text(row, "subject");
  number.quantity = table + " " + bin;
  number.bin = {rows.number(row, "bin_low"), rows.number(row, "bin_high"), false};
  constexpr std::string_view kLayer = " layer ";  // as in the subject "qwen3-4b layer 16"
  if (const auto at = number.subject.find(kLayer); at != std::string::npos) {
    number.layer = parse_integer(number.subject.substr(at + kLayer.size()),
                                 rows.where(row) + ": the layer in subject");
    number.quantity += fmt::format(" layer {}", *number.layer);
    number.subject.resize(at);
  }
  const bool edges = number.bin.low < number.bin.high;
  if (const auto difference = parse_difference_between_bins(table, bin)) {
    number.value_kind = PublishedValueKind::profile;
    number.bin = difference->first;
    number.minus = difference->second;
  } else if (table == "heatmap") {
    constexpr std::string_view kQuery = "query distance ";
    const auto at = bin.find(kQuery);
    if (at == std::string::npos || !edges)
      bad_input("{}: expected the edges of the keys' distance, and 'query distance N' in bin",
                rows.where(row));
    number.value_kind = PublishedValueKind::heatmap;
    number.index = parse_integer(bin.substr(at + kQuery.size()), rows.where(row) + ": bin");
  } else if (table == "component_weights") {
    number.value_kind = PublishedValueKind::weight;
    number.index = rows.integer(row, "bin_low");
  } else if (edges) {
    number.value_kind =
        table == "profile_mean_line" ? PublishedValueKind::line : PublishedValueKind::profile;
    number.bin.fraction = number.bin.high <= 1.0;
  }
  return number;  // a row without edges stays a quantity that qkscope does not compute
}

// Reads published PCA components of single heads (small_models.csv).
void read_pca_components(const PublishedRows& rows, PublishedNumbers& set) {
  for (std::size_t row = 0; row < rows.count(); ++row) {
    PublishedNumber number;
    number.value_kind = PublishedValueKind::components;
    number.subject = rows.text(row, "run");
    number.kind = "printed";
    number.source = rows.text(row, "source");
    number.layer = rows.integer(row, "layer");
    number.head = rows.integer(row, "head");
    number.index = rows.integer(row, "pca_dim");
    const auto side = rows.text(row, "kind");
    if (side != "q" && side != "k")
      bad_input("{}: kind: found {}, expected q or k", rows.where(row), quote_text(side));
    number.side = side[0];
    for (const char* column : {"correlation", "explained_variance_ratio"}) {
      number.value = rows.number(row, column);
      number.text = rows.text(row, column);
      number.se = published_standard_error(rows, row, number.value, column);
      number.quantity = fmt::format("{} L{:02}H{:02}{} pc{}", column, *number.layer, number.head,
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
PrintedNumber take_printed_number(std::string_view& text) {
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
  return {number_or_nan(digits) * std::pow(10.0, exponent), std::pow(10.0, exponent - decimals)};
}

bool equal_within_rounding(double a, double b) {
  return std::fabs(a - b) <= 1e-6 * std::fabs(b);
}

// Returns the factor between the printed number and the value: 1, a power of ten (per cent,
// "x10^3", an exponent after a range) or 1024 ("256K"). Returns NaN for any other factor.
double unit_scale(const PrintedNumber& printed, double value, std::string_view text) {
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

std::vector<std::string> PublishedNumbers::subjects() const {
  std::vector<std::string> names;
  for (const auto& number : numbers)
    if (std::ranges::find(names, number.subject) == names.end()) names.push_back(number.subject);
  return names;
}

PublishedNumbers read_published_numbers(const std::string& name) {
  const PublishedRows rows(find_published_file(name));
  PublishedNumbers set;
  set.file = rows.file();
  const auto quantity = rows.first_existing_column({"quantity", "measure"});
  const auto subject = rows.first_existing_column({"checkpoint", "model", "subject"});
  const bool values = rows.has("value");
  if (rows.has("pca_dim") && rows.has("correlation")) {
    read_pca_components(rows, set);
  } else if (values && rows.has("table") && rows.has("bin") && !subject.empty()) {
    for (std::size_t row = 0; row < rows.count(); ++row)
      set.numbers.push_back(read_profile_row(rows, row));
  } else if (values && !quantity.empty() && !subject.empty()) {
    read_quantities(rows, subject, quantity, set);
  } else if (values && !quantity.empty() && rows.has("scope")) {
    set.pooled = true;
    read_quantities(rows, "scope", quantity, set);
  } else if (values && rows.has("benchmark")) {
    bad_input("{}: holds scores of benchmarks; they are not what qkscope measures", set.file);
  } else {
    bad_input(
        "{}: not a set of published numbers: expected the columns checkpoint (or model), quantity "
        "and value; found {}",
        set.file, fmt::join(read_csv_header(set.file), ", "));
  }
  std::set<std::tuple<std::string, std::string, std::string, std::string>> seen;
  for (const auto& number : set.numbers)
    if (!seen.emplace(number.subject, number.quantity, number.source, number.text).second)
      bad_input("{}: {} of {} is there twice{}", set.file, number.quantity, number.subject,
                number.source.empty() ? "" : " from one source");
  return set;
}

std::vector<std::string> published_sets() {
  return translate_exceptions([] { return collect_map_keys(published_files()); });
}

double printed_rounding_error(std::string_view text, double value) {
  if (text.starts_with("not printed")) return kNan;
  const double units = text.find('~') == std::string_view::npos ? 0.5 : 1.0;
  std::vector<PrintedNumber> numbers;
  for (auto rest = text; rest.find_first_of(kDigits) != std::string_view::npos;) {
    rest.remove_prefix(rest.find_first_of(kDigits));
    numbers.push_back(take_printed_number(rest));
  }
  for (const auto& printed : numbers) {
    const double scale = unit_scale(printed, value, text);
    if (!std::isnan(scale)) return units * printed.unit * scale;
  }
  if (numbers.size() == 2 &&
      std::fabs(numbers[0].value - numbers[1].value - value) < 1e-6 * std::fabs(numbers[0].value))
    return units * std::hypot(numbers[0].unit, numbers[1].unit);
  return kNan;
}

double parse_uncertainty(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return number_or_nan(text);
  return number_or_nan(text.substr(0, slash)) / number_or_nan(text.substr(slash + 1));
}

}  // namespace qkscope
