// Typed reading of a Hugging Face config.json: null and absent are the same, and every complaint
// names the key, what was found and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"

namespace qkscope {

class ConfigReader {
 public:
  // What a setting may be, both ends included; NaN lies in no range.
  struct Range {
    double least, most;

    bool holds(double value) const { return value >= least && value <= most; }
    std::string to_string() const;
  };

  // `where` names the object in messages: "config.json" or "config.json: text_config".
  ConfigReader(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  bool has(const std::string& key) const;       // present and not null
  bool mentions(const std::string& key) const;  // null counts
  const Json& at(const std::string& key) const;
  ConfigReader section(const std::string& key) const;  // an object inside this one

  std::int64_t count(const std::string& key) const;  // a positive integer that must be there
  std::int64_t count(const std::string& key, std::int64_t otherwise) const;
  std::int64_t natural(const std::string& key, std::int64_t otherwise) const;  // zero or more
  double number(const std::string& key) const;
  double number(const std::string& key, double otherwise) const;
  double number(const std::string& key, Range range) const;
  double number(const std::string& key, double otherwise, Range range) const;  // where it is there
  bool flag(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key, Range range) const;
  std::vector<std::string> words(const std::string& key) const;

  // A bad_input error about `key` that shows what was found.
  [[noreturn]] void complain(const std::string& key, const std::string& expected) const;

 private:
  const Json* object_;
  std::string where_;
};

}  // namespace qkscope
