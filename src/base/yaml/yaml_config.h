// Configurations in YAML: a document with its overrides, read map by map and key by key. Every
// complaint names the file, line and key, and a key that nobody asked for is an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "base/io/json.h"

namespace qkscope {

struct YamlDocument {
  std::string file;
  YAML::Node root;
  // Dotted keys whose value is not the file's, with where it came from: "--set" or "x.yaml:3:".
  std::map<std::string, std::string> overridden;

  // "run.yaml:12: capture.layers" or "--set capture.layers".
  std::string where(const std::string& key, const YAML::Node& node) const;
};

YamlDocument load_yaml(const std::string& file);
// `where` names the text in messages.
YamlDocument parse_yaml(const std::string& text, const std::string& where);

// Puts the value in place of what stands at the dotted key; `origin` goes before the key in
// messages.
void override_value(YamlDocument& document, const std::string& key, const YAML::Node& value,
                    const std::string& origin);
// The same from the command line: KEY=VALUE with dots between the levels and YAML values.
void override_values(YamlDocument& document, const std::vector<std::string>& options);

// null, numbers, booleans, strings, lists and maps as YAML understands plain scalars.
Json yaml_to_json(const YAML::Node& node);

// One map of the document.
class YamlSection {
 public:
  // `path` is the dotted name, empty for the whole document. A missing or null map reads as empty.
  YamlSection(const YamlDocument& document, const YAML::Node& node, std::string path);

  // Each returns nothing where the key is missing or null.
  std::optional<std::string> text(const std::string& key);
  std::optional<std::int64_t> integer(const std::string& key, std::int64_t least);
  std::optional<double> positive_number(const std::string& key);
  std::optional<bool> boolean(const std::string& key);
  std::optional<std::vector<std::int64_t>> integers(const std::string& key);
  Json map(const std::string& key);  // null where missing
  YamlSection section(const std::string& key);
  std::vector<YamlSection> sections(const std::string& key);  // of a list of maps
  YAML::Node node(const std::string& key);                    // as it stands; null where missing
  bool has(const std::string& key);                           // and is not null

  // Keys that are understood but change nothing here.
  void accept(const std::vector<std::string>& keys);
  // Keys of an older program: ignored with a warning.
  void retire(const std::vector<std::string>& keys);

  std::string required_text(const std::string& key);
  // Every key in the map must have been asked for.
  void finish() const;

  // Bad input at `key`: what was expected.
  [[noreturn]] void expected(const std::string& key, const std::string& what) const;

 private:
  YAML::Node find(const std::string& key);
  std::string full(const std::string& key) const;

  const YamlDocument& document_;
  YAML::Node node_;
  std::string path_;
  std::set<std::string> known_;
};

}  // namespace qkscope
