#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"
#include "io/mapped_file.h"
#include "yaml/yaml_section.h"

namespace qkscope {
namespace {

constexpr int kDeepest = 50;

YAML::Node parse(const std::string& text, const std::string& where) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    bad_input("{}:{}: not YAML: {}", where, error.mark.line + 1, error.msg);
  }
}

Json scalar_to_json(const YAML::Node& node) {
  const auto& text = node.Scalar();
  if (node.Tag() == "!") return text;  // in quotes
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::int64_t integer = 0;
  if (YAML::convert<std::int64_t>::decode(node, integer)) return integer;
  double number = 0.0;
  if (YAML::convert<double>::decode(node, number)) return number;
  return text;
}

Json to_json(const YAML::Node& node, int depth) {
  if (depth > kDeepest) bad_input("configuration: maps nested deeper than {} levels", kDeepest);
  if (node.IsScalar()) return scalar_to_json(node);
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& item : node) list.push_back(to_json(item, depth + 1));
    return list;
  }
  if (node.IsMap()) {
    Json map = Json::object();
    for (const auto& entry : node)
      map[entry.first.as<std::string>("")] = to_json(entry.second, depth + 1);
    return map;
  }
  return nullptr;
}

}  // namespace

std::string YamlDocument::where(const std::string& key, const YAML::Node& node) const {
  for (const auto& [option, origin] : overridden)
    if (key == option || key.starts_with(option + ".")) return origin + " " + key;
  const auto line = node.Mark().line;
  return line < 0 ? fmt::format("{}: {}", file, key)
                  : fmt::format("{}:{}: {}", file, line + 1, key);
}

YamlDocument load_yaml(const std::string& file) {
  return parse_yaml(std::string(MappedFile(file).text()), file);
}

YamlDocument parse_yaml(const std::string& text, const std::string& where) {
  YamlDocument document{.file = where, .root = parse(text, where), .overridden = {}};
  if (document.root.IsNull()) document.root = YAML::Node(YAML::NodeType::Map);
  if (!document.root.IsMap()) bad_input("{}: expected a map of keys and values", where);
  return document;
}

void override_value(YamlDocument& document, const std::string& key, const YAML::Node& value,
                    const std::string& origin) {
  const auto parts = split(key, '.');
  YAML::Node node = document.root;
  std::string path;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    path += (path.empty() ? "" : ".") + parts[i];
    YAML::Node next = node[parts[i]];
    if (next.IsDefined() && !next.IsNull() && !next.IsMap())
      bad_input("{} {}: {} is not a map", origin, key, document.where(path, next));
    node.reset(next);
  }
  node[parts.back()] = value;
  document.overridden[key] = origin;
}

void override_values(YamlDocument& document, const std::vector<std::string>& options) {
  for (const auto& option : options) {
    const auto equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      bad_input("--set: found {}, expected KEY=VALUE (capture.min_bucket_size=256)",
                in_quotes(option));
    const auto key = option.substr(0, equals);
    override_value(document, key, parse(option.substr(equals + 1), "--set " + key), "--set");
  }
}

Json yaml_to_json(const YAML::Node& node) {
  return to_json(node, 0);
}

}  // namespace qkscope
