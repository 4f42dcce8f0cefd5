#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/core/numbers.h"
#include "study/compare/published.h"

namespace qkscope {
namespace {

// An unsigned decimal number of a text.
struct PrintedNumber {
  double value = 0;
  double unit = 1;  // value of one unit of the last digit
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Parses a number ("3,239", "0.60", "3.19e-3") and removes it from the beginning of the text.
PrintedNumber remove_number(std::string_view& text) {
  std::string digits;
  int decimals = 0;
  bool point = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const bool digit_follows = i + 1 < text.size() && is_digit(text[i + 1]);
    if (is_digit(text[i])) {
      digits += text[i];
      decimals += point ? 1 : 0;
    } else if (text[i] == '.' && !point && digit_follows) {
      digits += '.';
      point = true;
    } else if (text[i] != ',' || point || !digit_follows) {
      break;
    }
  }
  int exponent = 0;
  if (i < text.size() && text[i] == 'e') {
    const auto begin = i + 1 < text.size() && text[i + 1] == '+' ? i + 2 : i + 1;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + text.size(), exponent);
    if (parsed.ec == std::errc()) i = static_cast<std::size_t>(parsed.ptr - text.data());
  }
  text.remove_prefix(i);
  return {parse_number(digits) * std::pow(10.0, exponent), std::pow(10.0, exponent - decimals)};
}

std::vector<PrintedNumber> find_numbers(std::string_view text) {
  std::vector<PrintedNumber> numbers;
  while (true) {
    const auto begin = text.find_first_of("0123456789");
    if (begin == std::string_view::npos) return numbers;
    text.remove_prefix(begin);
    numbers.push_back(remove_number(text));
  }
}

bool about_equal(double a, double b) {
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
  return about_equal(scale, power) || about_equal(scale, 1024.0) ? scale : kNan;
}

}  // namespace

double parse_number(std::string_view text) {
  double value = kNan;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc() && parsed.ptr == end ? value : kNan;
}

double printed_rounding_error(std::string_view text, double value) {
  if (text.starts_with("not printed")) return kNan;
  const double units = text.find('~') == std::string_view::npos ? 0.5 : 1.0;
  const auto numbers = find_numbers(text);
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
  if (slash == std::string_view::npos) return parse_number(text);
  return parse_number(text.substr(0, slash)) / parse_number(text.substr(slash + 1));
}

}  // namespace qkscope
