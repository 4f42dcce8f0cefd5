// Reads one component ("normalizer", "decoder", ...) of a tokenizer.json. Errors name the
// component.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/io/json_fwd.h"
#include "input/tokenizer/pattern.h"

namespace qkscope {

class JsonSpec {
 public:
  // `part` is the key of the component in the file, for error messages.
  JsonSpec(const Json& json, std::string part, std::string where);

  const std::string& type() const { return type_; }
  const std::string& where() const { return where_; }

  // Throws bad input for keys that are neither "type" nor listed: ignoring them could change the
  // ids.
  void allow(std::initializer_list<std::string_view> keys) const;

  bool flag(const std::string& key, std::optional<bool> fallback = std::nullopt) const;
  std::string text(const std::string& key,
                   std::optional<std::string> fallback = std::nullopt) const;
  std::int64_t integer(const std::string& key) const;
  const Json& list(const std::string& key) const;
  const Json& value(const std::string& key) const;
  // Reads "pattern": {"String": ...} or {"Regex": ...}. A string pattern is also stored in
  // `literal`.
  Pattern pattern(std::string* literal = nullptr) const;

  [[noreturn]] void unknown_type() const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const Json& json_;
  std::string part_;
  std::string where_;
  std::string type_;
};

}  // namespace qkscope
