// Parsing of config.json of any family into a ModelConfig.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "qkscope/model.h"

namespace qkscope {

// Typed access to a JSON object of a Hugging Face config.json. A null value counts as absent. Every
// error names the key, the value found and the value expected.
class ConfigReader {
 public:
  // Inclusive range of valid values; contains no NaN.
  struct Range {
    double least, most;
    bool holds(double value) const { return value >= least && value <= most; }
    std::string to_string() const;
  };

  // `where` names the JSON object in messages: "config.json" or "config.json: text_config".
  ConfigReader(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  bool has_value(const std::string& key) const;     // present and not null
  bool contains_key(const std::string& key) const;  // null counts as present
  const Json& at(const std::string& key) const;
  ConfigReader section(const std::string& key) const;  // a nested object

  std::int64_t positive_integer(const std::string& key) const;  // a required positive integer
  std::int64_t positive_integer(const std::string& key, std::int64_t fallback) const {
    return has_value(key) ? positive_integer(key) : fallback;
  }
  std::int64_t non_negative_integer(const std::string& key, std::int64_t fallback) const;
  double number(const std::string& key, Range range) const;
  double number(const std::string& key, double fallback, Range range) const {
    return has_value(key) ? number(key, range) : fallback;
  }
  // Optional values with a fallback, and required lists.
  bool flag(const std::string& key, bool fallback) const;
  std::string string(const std::string& key, const std::string& fallback) const;
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key, Range range) const;
  std::vector<std::string> strings(const std::string& key) const;

  // Throws a bad_input error that quotes the value of `key`.
  [[noreturn]] void fail(const std::string& key, const std::string& expected) const;

 private:
  const Json* object_;
  std::string where_;
};

// Parses config.json after overrides were merged. `where` names the file in messages.
ModelConfig parse_model_config(const Json& config, const std::string& where);

}  // namespace qkscope
