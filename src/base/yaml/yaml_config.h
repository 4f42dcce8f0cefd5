// YAML configurations: a document with overrides, read mapping by mapping and key by key. Error
// messages name the file, line and key; unknown keys are errors.
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
  // Maps every overridden key (dotted) to the origin of its value: "--set" or "x.yaml:3:".
  std::map<std::string, std::string> overridden;

  // Returns the location of a key for an error message: "run.yaml:12: capture.layers" or "--set
  // capture.layers".
  std::string location(const std::string& key, const YAML::Node& node) const;
};

// Parse YAML and apply command-line overrides KEY=VALUE with a dotted key and a YAML value. `where`
// names the text in error messages.
YamlDocument load_yaml(const std::string& file, const std::vector<std::string>& overrides = {});
YamlDocument parse_yaml(const std::string& text, const std::string& where,
                        const std::vector<std::string>& overrides = {});

// Sets the value of a dotted key; `origin` precedes the key in error messages.
void override_yaml_value(YamlDocument& document, const std::string& key, const YAML::Node& value,
                         const std::string& origin);
void apply_yaml_overrides(YamlDocument& document, const std::vector<std::string>& options);

// Returns true for a whole number with leading zeros and for a list that contains such a number:
// 010 is 8 in YAML 1.1 and 10 in YAML 1.2, so it is an error where a number is expected.
bool has_octal_number(const YAML::Node& node);

// Returns true and sets `value` if the node is a whole number that is not octal.
bool decode_integer(const YAML::Node& node, std::int64_t& value);

// Converts a YAML node to JSON. Plain scalars become null, booleans, numbers or strings as in YAML.
Json yaml_to_json(const YAML::Node& node);

// One mapping of the document.
class YamlSection {
 public:
  // `path` is the dotted key, "" for the root. A missing or null section counts as empty.
  YamlSection(const YamlDocument& document, const YAML::Node& node, std::string path);

  // Readers return nullopt for a missing or null key; a wrong type is a bad-input error.
  std::optional<std::string> text(const std::string& key);
  // Reads an integer from `least` to 2^40, or any integer if `least` is INT64_MIN.
  std::optional<std::int64_t> integer(const std::string& key, std::int64_t least);
  std::optional<double> positive_number(const std::string& key);
  std::optional<bool> boolean(const std::string& key);
  bool boolean_from_words(const std::string& key, const std::string& false_word,
                          const std::string& true_word);  // false if the key is missing
  std::optional<std::vector<std::int64_t>> integers(const std::string& key);
  Json mapping(const std::string& key);  // JSON null if the key is missing
  YamlSection section(const std::string& key) { return {document_, node(key), full_key(key)}; }
  std::vector<YamlSection> sections(const std::string& key);  // a list of mappings
  YAML::Node node(const std::string& key);  // unconverted; null if the key is missing
  bool has_value(const std::string& key) { return !node(key).IsNull(); }  // present and not null

  // Marks keys as known, so that reject_unknown_keys() accepts them although they are not read.
  void accept_keys(const std::vector<std::string>& keys) {
    known_.insert(keys.begin(), keys.end());
  }
  // Marks configuration keys of older versions as known; warns about each key that is present.
  void accept_retired_keys(const std::vector<std::string>& keys);

  std::string required_text(const std::string& key);
  // Throws a bad-input error for the first key that was neither read nor marked as known.
  void reject_unknown_keys() const;

  // Throws a bad-input error for `key`: "found ..., expected WHAT".
  [[noreturn]] void reject_value(const std::string& key, const std::string& what) const;

 private:
  // Throws a bad-input error, "expected WHAT", unless `value` is a T and valid(value) is true.
  template <typename T, typename Valid>
  std::optional<T> scalar(const std::string& key, const std::string& what, const Valid& valid);
  std::string full_key(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }
  // Throws a bad-input error if an unknown key looks like a misspelling of the missing `key`.
  void reject_misspelt_key(const std::string& key) const;

  const YamlDocument& document_;
  YAML::Node node_;
  std::string path_;
  std::set<std::string> known_;
};

}  // namespace qkscope
