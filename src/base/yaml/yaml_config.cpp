#include "base/yaml/yaml_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

constexpr int kDeepest = 50;
constexpr std::size_t kLargest = std::size_t{4} << 20;  // bytes; typical files have a few thousand
constexpr std::int64_t kMostCount = std::int64_t{1} << 40;  // far above any meaningful count
constexpr int kMostValues = 100'000;  // guards against alias expansion ("billion laughs")

// YAML forbids control characters, and yaml-cpp turns them into invalid UTF-8.
void refuse_control_characters(const std::string& text, const std::string& where) {
  const auto found = std::ranges::find_if(text, [](unsigned char code) {
    return (code < 0x20 && code != '\n' && code != '\r' && code != '\t') || code == 0x7f;
  });
  if (found != text.end())
    reject("{}:{}: not YAML: the control character 0x{:02x}", where,
           1 + std::count(text.begin(), found, '\n'), static_cast<unsigned char>(*found));
}

// Rejects text with several YAML documents: a line "---" or "..." in the first column ends a
// document, even inside a scalar. (YAML::LoadAll takes unbounded memory for some malformed texts.)
void refuse_second_document(const std::string& text, const std::string& where) {
  bool content = false, ended = false;
  std::int64_t number = 0;
  for (const auto& line : split(text, '\n')) {
    ++number;
    const bool marker = line.starts_with("---") || line.starts_with("...");
    const bool alone = marker && line.find_first_not_of(" \t\r", 3) == line.npos;
    if (marker && (alone || line[3] == ' ' || line[3] == '\t')) {
      ended = content || ended;
      content = !alone && line[0] == '-';
    } else if (line.find_first_not_of(" \t\r") != line.npos && line[0] != '#' && line[0] != '%') {
      content = true;
    }
    if (ended && content)
      reject("{}:{}: a second YAML document begins, expected one", where, number);
  }
}

YAML::Node parse_yaml_node(const std::string& text, const std::string& where) {
  if (text.size() > kLargest)
    reject("{}: YAML of {}, expected at most {}", where, format_bytes(text.size()),
           format_bytes(kLargest));
  if (const auto at = find_invalid_utf8(text); at != std::string::npos)
    reject("{}: not UTF-8 at byte {}", where, at);
  refuse_control_characters(text, where);
  refuse_second_document(text, where);
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    reject("{}:{}: not YAML: {}", where, error.mark.line + 1, error.msg);
  }
}

Json yaml_scalar_to_json(const YAML::Node& node) {
  const auto& text = node.Scalar();
  if (node.Tag() == "!") return text;  // a quoted scalar is a string
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::int64_t integer = 0;
  if (decode_integer(node, integer)) return integer;
  double number = 0.0;
  if (has_octal_number(node) || !YAML::convert<double>::decode(node, number)) return text;
  if (!std::isfinite(number))
    reject("configuration, line {}: found {}, expected a finite number", node.Mark().line + 1,
           text);
  return number;
}

// Converts a YAML node to JSON; plain scalars become null, booleans, numbers or strings. `left` is
// the number of values that may still be converted; below 0 the conversion fails.
Json to_json(const YAML::Node& node, int depth, int& left) {
  const auto line = node.Mark().line + 1;
  if (depth > kDeepest)
    reject("configuration, line {}: maps nested deeper than {} levels", line, kDeepest);
  if (--left < 0)
    reject("configuration, line {}: its aliases stand for more than {} values", line, kMostValues);
  if (node.IsScalar()) return yaml_scalar_to_json(node);
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& item : node) list.push_back(to_json(item, depth + 1, left));
    return list;
  }
  if (node.IsMap()) {
    Json map = Json::object();
    for (const auto& entry : node)
      map[entry.first.as<std::string>("")] = to_json(entry.second, depth + 1, left);
    return map;
  }
  return nullptr;
}

std::string describe_yaml_value(const YAML::Node& node) {
  if (node.IsScalar()) return quote_text(node.Scalar());
  return node.IsMap() ? "a map" : node.IsSequence() ? "a list" : "nothing";
}

}  // namespace

bool has_octal_number(const YAML::Node& node) {
  if (node.IsSequence()) return std::any_of(node.begin(), node.end(), has_octal_number);
  if (!node.IsScalar()) return false;
  std::string_view text = node.Scalar();
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && text.find_first_not_of("0123456789") == text.npos;
}

bool decode_integer(const YAML::Node& node, std::int64_t& value) {
  return node.IsScalar() && !has_octal_number(node) &&
         YAML::convert<std::int64_t>::decode(node, value);
}

std::string YamlDocument::location(const std::string& key, const YAML::Node& node) const {
  for (const auto& [option, origin] : overridden)
    if (key == option || key.starts_with(option + ".")) return fmt::format("{} {}", origin, key);
  const auto line = node.Mark().line;
  return line < 0 ? fmt::format("{}: {}", file, key)
                  : fmt::format("{}:{}: {}", file, line + 1, key);
}

YamlDocument load_yaml(const std::string& file, const std::vector<std::string>& overrides) {
  return parse_yaml(std::string(MappedFile(file).text()), file, overrides);
}

YamlDocument parse_yaml(const std::string& text, const std::string& where,
                        const std::vector<std::string>& overrides) {
  YamlDocument document{.file = where, .root = parse_yaml_node(text, where), .overridden = {}};
  if (document.root.IsNull()) document.root = YAML::Node(YAML::NodeType::Map);
  if (!document.root.IsMap()) reject("{}: expected a map of keys and values", where);
  apply_yaml_overrides(document, overrides);
  return document;
}

void override_yaml_value(YamlDocument& document, const std::string& key, const YAML::Node& value,
                         const std::string& origin) {
  const auto parts = split(key, '.');
  YAML::Node node = document.root;
  std::string path;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    path += (path.empty() ? "" : ".") + parts[i];
    YAML::Node next = node[parts[i]];
    if (next.IsDefined() && !next.IsNull() && !next.IsMap())
      reject("{} {}: {} is not a map", origin, key, document.location(path, next));
    node.reset(next);
  }
  node[parts.back()] = value;
  document.overridden[key] = origin;
}

void apply_yaml_overrides(YamlDocument& document, const std::vector<std::string>& options) {
  for (const auto& option : options) {
    const auto equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      reject("--set: found {}, expected KEY=VALUE (capture.min_bucket_size=256)",
             quote_text(option));
    const auto key = option.substr(0, equals);
    override_yaml_value(document, key, parse_yaml_node(option.substr(equals + 1), "--set " + key),
                        "--set");
  }
}

Json yaml_to_json(const YAML::Node& node) {
  int left = kMostValues;
  return to_json(node, 0, left);
}

YamlSection::YamlSection(const YamlDocument& document, const YAML::Node& node, std::string path)
    : document_(document), node_(node), path_(std::move(path)) {
  if (!node_.IsDefined() || node_.IsNull()) node_ = YAML::Node(YAML::NodeType::Map);
  if (!node_.IsMap())
    reject("{}: found {}, expected a map", document.location(path_, node),
           describe_yaml_value(node));
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const auto key = entry.first.as<std::string>("");
    if (!seen.insert(key).second)
      reject("{}: the key is there twice", document_.location(full_key(key), entry.first));
  }
}

YAML::Node YamlSection::node(const std::string& key) {
  known_.insert(key);
  // The node is const because operator[] of a mutable node inserts a missing key.
  const YAML::Node found = std::as_const(node_)[key];
  return found.IsDefined() && !found.IsNull() ? found : YAML::Node(YAML::NodeType::Null);
}

void YamlSection::reject_misspelt_key(const std::string& key) const {
  for (const auto& entry : node_) {
    const auto name = entry.first.as<std::string>("");
    if (name != key && !known_.contains(name) && closest_spelling(name, {&key, 1}) == key)
      reject("{}: there is no such key; did you mean {}?",
             document_.location(full_key(name), entry.first), full_key(key));
  }
}

void YamlSection::reject_value(const std::string& key, const std::string& what) const {
  const YAML::Node found = std::as_const(node_)[key];
  if (!found.IsDefined()) {
    reject_misspelt_key(key);
    if (!path_.empty())
      YamlSection(document_, document_.root, "").reject_misspelt_key(split(path_, '.').front());
    reject("{}: {} is missing: expected {}", document_.file, full_key(key), what);
  }
  reject("{}: found {}, expected {}", document_.location(full_key(key), found),
         describe_yaml_value(found), what);
}

std::optional<std::string> YamlSection::text(const std::string& key) {
  return scalar<std::string>(key, "a string", [](const std::string&) { return true; });
}

std::string YamlSection::required_text(const std::string& key) {
  auto value = text(key);
  if (!value || value->empty()) reject_value(key, "a string");
  return *value;
}

template <typename T, typename Valid>
std::optional<T> YamlSection::scalar(const std::string& key, const std::string& what,
                                     const Valid& valid) {
  const auto found = node(key);
  if (found.IsNull()) return {};
  T value{};
  if (std::is_arithmetic_v<T> && has_octal_number(found))
    reject_value(key, what + ", without leading zeros");
  if (!found.IsScalar() || !YAML::convert<T>::decode(found, value) || !valid(value))
    reject_value(key, what);
  return value;
}

std::optional<std::int64_t> YamlSection::integer(const std::string& key, std::int64_t least) {
  const auto what = least == INT64_MIN ? std::string("a whole number")
                                       : fmt::format("a whole number from {} on", least);
  const auto found =
      scalar<std::int64_t>(key, what, [&](std::int64_t value) { return value >= least; });
  if (least != INT64_MIN && found && *found > kMostCount)
    reject_value(key, fmt::format("at most {}", kMostCount));
  return found;
}

std::optional<double> YamlSection::positive_number(const std::string& key) {
  return scalar<double>(key, "a number above 0",
                        [](double value) { return std::isfinite(value) && value > 0; });
}

std::optional<bool> YamlSection::boolean(const std::string& key) {
  return scalar<bool>(key, "true or false", [](bool) { return true; });
}

bool YamlSection::boolean_from_words(const std::string& key, const std::string& false_word,
                                     const std::string& true_word) {
  const auto word = text(key).value_or(false_word);
  if (word != false_word && word != true_word) reject_value(key, false_word + " or " + true_word);
  return word == true_word;
}

std::optional<std::vector<std::int64_t>> YamlSection::integers(const std::string& key) {
  const auto found = node(key);
  if (found.IsNull()) return {};
  std::vector<std::int64_t> values;
  if (!found.IsSequence()) reject_value(key, "a list of whole numbers, or null for all");
  for (const auto& item : found) {
    std::int64_t value = 0;
    if (!decode_integer(item, value))
      reject("{}: found {} in the list, expected whole numbers",
             document_.location(full_key(key), item), describe_yaml_value(item));
    values.push_back(value);
  }
  if (values.empty()) reject_value(key, "at least one entry, or null for all");
  return values;
}

Json YamlSection::mapping(const std::string& key) {
  const auto found = node(key);
  if (found.IsNull()) return nullptr;
  if (!found.IsMap()) reject_value(key, "a map");
  return yaml_to_json(found);
}

std::vector<YamlSection> YamlSection::sections(const std::string& key) {
  const auto list = node(key);
  if (list.IsNull()) return {};
  if (!list.IsSequence()) reject_value(key, "a list");
  std::vector<YamlSection> all;
  for (std::size_t i = 0; i < list.size(); ++i)
    all.emplace_back(document_, list[i], fmt::format("{}[{}]", full_key(key), i));
  return all;
}

void YamlSection::accept_retired_keys(const std::vector<std::string>& keys) {
  for (const auto& key : keys) {
    known_.insert(key);
    if (const YAML::Node found = std::as_const(node_)[key]; found.IsDefined())
      log::warn("{}: no longer used, ignored", document_.location(full_key(key), found));
  }
}

void YamlSection::reject_unknown_keys() const {
  const std::vector<std::string> names(known_.begin(), known_.end());
  for (const auto& entry : node_) {
    const auto key = entry.first.as<std::string>("");
    if (known_.contains(key)) continue;
    const auto near = closest_spelling(key, names);
    reject("{}: there is no such key{}", document_.location(full_key(key), entry.first),
           near.empty() ? fmt::format("; known are {}", fmt::join(names, ", "))
                        : fmt::format("; did you mean {}?", full_key(near)));
  }
}

}  // namespace qkscope
