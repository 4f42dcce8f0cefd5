#include "cli/analysis_options.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/error.h"
#include "cli/numbers.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

// Parses layer numbers: "0,4-7" gives 0, 4, 5, 6, 7.
std::vector<std::int64_t> parse_layers(const std::string& text) {
  constexpr std::int64_t kMost = 1 << 20;
  std::vector<std::int64_t> layers;
  for (const std::string_view part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto first = parse_plain_number<std::int64_t>(part.substr(0, dash));
    const auto last =
        dash == part.npos ? first : parse_plain_number<std::int64_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMost)
      reject("'{}' is not a layer; expected numbers and ranges, as 0,4-7", part);
    for (auto layer = *first; layer <= *last; ++layer) layers.push_back(layer);
  }
  return layers;
}

// Parses query heads: "3.5,3.6" or "(3,5),(3,6)" gives heads 5 and 6 of layer 3.
std::vector<HeadId> parse_heads(const std::string& text) {
  std::string plain;
  bool inside = false;
  for (const char c : text) {
    if (c == '(' || c == ')')
      inside = c == '(';
    else
      plain += inside && c == ',' ? '.' : c;
  }
  std::vector<HeadId> heads;
  for (const std::string_view part : split(plain, ',')) {
    const auto dot = std::min(part.find('.'), part.size());
    const auto layer = parse_plain_number<int>(part.substr(0, dot));
    const auto head = parse_plain_number<int>(part.substr(std::min(dot + 1, part.size())));
    if (!layer || !head || *layer < 0 || *head < 0)
      reject("'{}' is not a head; expected LAYER.HEAD, as 3.5,3.6 or (3,5),(3,6)", part);
    heads.push_back({*layer, *head, HeadKind::query});
  }
  return heads;
}

template <typename T>
std::optional<OptionValue> parse_number(const std::string& text) {
  if (const auto value = parse_plain_number<T>(text)) return *value;
  return {};
}

std::optional<OptionValue> parse_counts(const std::string& text) {
  std::vector<std::int64_t> counts;
  for (const auto& part : split(text, ',')) {
    const auto value = parse_plain_number<std::int64_t>(part);
    if (!value) return {};
    counts.push_back(*value);
  }
  return counts;
}

// Parses the text as a value of the option's type. Returns nullopt if the text does not match the
// type.
std::optional<OptionValue> parse_option_value(const AnalysisOption& option, std::string text) {
  if (option.kind != OptionKind::text) std::erase(text, ' ');
  switch (option.kind) {
    case OptionKind::count:
      if (std::ranges::count(option.words, text) > 0) return text;
      return parse_number<std::uint64_t>(text);
    case OptionKind::number:
      return parse_number<double>(text);
    case OptionKind::counts:
      return parse_counts(text);
    case OptionKind::layers:
      return parse_layers(text);
    case OptionKind::heads:
      return parse_heads(text);
    case OptionKind::flag:
    case OptionKind::choice:
    case OptionKind::text:
      break;
  }
  return text;
}

// Returns an error message if the option does not accept the value, else "".
std::string check_option_value(const AnalysisOption& option, const std::string& text) try {
  const auto value = parse_option_value(option, text);
  return value && option.allows(*value)
             ? ""
             : fmt::format("found '{}'; expected {}", text, option.expected());
} catch (const Error& error) {
  return error.what();
}

std::string value_type_name(const AnalysisOption& option) {
  switch (option.kind) {
    case OptionKind::count:
      return option.words.empty() ? "N" : fmt::format("N|{}", option.words.front());
    case OptionKind::number:
      return "NUMBER";
    case OptionKind::choice:
      return fmt::format("{}", fmt::join(option.words, "|"));
    case OptionKind::counts:
      return "N,N,...";
    case OptionKind::layers:
      return "LAYERS";
    case OptionKind::heads:
      return "HEADS";
    case OptionKind::flag:
    case OptionKind::text:
      break;
  }
  return "TEXT";  // named in the table of option_table.cpp
}

void add_analysis_option(CLI::App& command, const AnalysisOption& option, AnalyzeOptions& options) {
  const auto name = option.command_line_name();
  const std::string group(title(option.group));
  if (option.kind == OptionKind::flag) {
    const bool is_on = std::get<bool>(option.fallback);
    std::string help(option.help);
    if (is_on)
      help = fmt::format("Leave out the {}", static_cast<char>(std::tolower(help[0]))) +
             help.substr(1);
    command
        .add_flag_callback(
            name, [&options, &option, is_on] { option.store(options, !is_on); }, help)
        ->group(group);
    return;
  }
  command
      .add_option_function<std::string>(
          name,
          [&options, &option](const std::string& text) {
            option.store(options, *parse_option_value(option, text));
          },
          std::string(option.help))
      ->check(CLI::Validator(
          [&option](const std::string& text) { return check_option_value(option, text); }, ""))
      ->type_name(value_type_name(option))
      ->default_str(option.default_text())
      ->group(group);
}

}  // namespace

void add_analysis_options(CLI::App& command, AnalyzeOptions& options,
                          std::initializer_list<OptionGroup> groups) {
  for (const auto& option : analysis_options())
    if (std::ranges::count(groups, option.group) > 0) add_analysis_option(command, option, options);
}

std::array<int, 2> parse_components(const std::string& text) {
  const auto parts = split(text, ',');
  const auto digits = [](const std::string& part) {
    return !part.empty() && part.size() < 6 &&
           part.find_first_not_of("0123456789") == std::string::npos;
  };
  if (parts.size() != 2 || !digits(parts[0]) || !digits(parts[1]))
    reject("--components: found '{}'; expected two numbers from 0 on, such as 2,3", text);
  return {std::stoi(parts[0]), std::stoi(parts[1])};
}

}  // namespace qkscope::cli
