#include "input/texts/card_configs.h"

#include <yaml-cpp/yaml.h>

#include "base/core/log.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

// Returns the YAML text between the first two "---" lines.
std::string front_matter(std::string_view card) {
  if (!card.starts_with("---\n") && !card.starts_with("---\r\n")) return "";
  const auto begin = card.find('\n') + 1;
  const auto end = card.find("\n---", begin - 1);
  return end == std::string_view::npos ? "" : std::string(card.substr(begin, end - begin + 1));
}

constexpr std::size_t kMaxCardBytes = std::size_t{16} << 20;  // bytes of front matter
constexpr int kMaxPatterns = 200'000;  // in all configurations; YAML aliases may repeat long lists

// Adds one pattern or a list of patterns to a split.
void add_patterns(const std::string& split, const YAML::Node& node, CardConfig& config,
                  int& patterns_left) {
  auto& files = config.files[split];
  const auto add_one = [&](const YAML::Node& item) {
    if (!item.IsScalar()) return;
    if (--patterns_left < 0)
      throw YAML::RepresentationException(
          node.Mark(), fmt::format("more than {} patterns of files", kMaxPatterns));
    files.push_back(item.Scalar());
  };
  add_one(node);
  if (node.IsSequence())
    for (const auto& item : node) add_one(item);
}

// Accepts "data.csv", a list of patterns, a list of {split, path}, or a map from split to patterns.
void read_data_files(const YAML::Node& node, CardConfig& config, int& patterns_left) {
  if (node.IsScalar()) add_patterns("train", node, config, patterns_left);
  if (node.IsMap())
    for (const auto& entry : node)
      add_patterns(entry.first.as<std::string>(), entry.second, config, patterns_left);
  if (!node.IsSequence()) return;
  for (const auto& item : node) {
    if (item.IsScalar()) add_patterns("train", item, config, patterns_left);
    if (item.IsMap() && item["path"])
      add_patterns(item["split"] ? item["split"].as<std::string>() : "train", item["path"], config,
                   patterns_left);
  }
}

CardConfig read_config(const YAML::Node& node, int& patterns_left) {
  CardConfig config;
  if (node["config_name"]) config.name = node["config_name"].as<std::string>();
  if (node["default"]) config.is_default = node["default"].as<bool>();
  if (node["data_dir"]) config.data_dir = node["data_dir"].as<std::string>();
  while (config.data_dir.ends_with('/')) config.data_dir.pop_back();
  if (node["data_files"]) read_data_files(node["data_files"], config, patterns_left);
  return config;
}

}  // namespace

std::vector<CardConfig> read_card_configs(std::string_view card, const std::string& where) {
  std::vector<CardConfig> configs;
  const auto text = front_matter(card);
  if (text.empty()) return configs;
  int patterns_left = kMaxPatterns;
  try {
    if (text.size() > kMaxCardBytes)
      throw YAML::RepresentationException(
          YAML::Mark(), fmt::format("it is larger than {}", format_bytes(kMaxCardBytes)));
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() || !root["configs"] || !root["configs"].IsSequence()) return configs;
    for (const auto& node : root["configs"])
      if (node.IsMap()) configs.push_back(read_config(node, patterns_left));
  } catch (const YAML::Exception& error) {
    log::warn(
        "{}: the front matter of the card is not understood (line {}: {}); files are chosen "
        "by their names",
        where, error.mark.line + 2, error.msg);
    return {};
  }
  return configs;
}

}  // namespace qkscope
