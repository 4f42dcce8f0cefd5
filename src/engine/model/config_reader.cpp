#include "engine/model/config_reader.h"

#include <cmath>

#include "base/core/error.h"
#include "base/io/json.h"

namespace qkscope {
namespace {

// Larger sizes could overflow a product of two sizes and do not fit the int of CUDA kernels.
constexpr std::int64_t kMaxCount = INT32_MAX;

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) < 0x1p53)
      return static_cast<std::int64_t>(number);
  }
  return std::nullopt;
}

std::optional<double> as_number(const Json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<std::string> as_string(const Json& value) {
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

// Converts every element of a list; fails if the value is no list or an element does not convert.
template <typename Convert>
auto read_list(const ConfigReader& config, const std::string& key, const std::string& expected,
               Convert convert) {
  const Json& list = config.at(key);
  if (!list.is_array()) config.fail(key, expected);
  std::vector<typename decltype(convert(list))::value_type> values;
  for (const auto& item : list) {
    const auto value = convert(item);
    if (!value) config.fail(key, expected);
    values.push_back(*value);
  }
  return values;
}

std::int64_t read_integer(const ConfigReader& config, const std::string& key, std::int64_t least) {
  const auto value = as_integer(config.at(key));
  if (!value || *value < least || *value > kMaxCount)
    config.fail(key, fmt::format("an integer from {} to {}", least, kMaxCount));
  return *value;
}

}  // namespace

std::string ConfigReader::Range::to_string() const {
  return fmt::format("a number from {} to {}", least, most);
}

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object())
    bad_input("{}: expected a JSON object, found {}", where_, object.type_name());
}

bool ConfigReader::has(const std::string& key) const {
  const auto entry = object_->find(key);
  return entry != object_->end() && !entry->is_null();
}

bool ConfigReader::contains(const std::string& key) const {
  return object_->contains(key);
}

const Json& ConfigReader::at(const std::string& key) const {
  if (!has(key)) bad_input("{}: '{}' is missing", where_, key);
  return (*object_)[key];
}

ConfigReader ConfigReader::section(const std::string& key) const {
  return {at(key), where_ + ": " + key};
}

std::int64_t ConfigReader::count(const std::string& key) const {
  return read_integer(*this, key, 1);
}

std::int64_t ConfigReader::non_negative(const std::string& key, std::int64_t fallback) const {
  return has(key) ? read_integer(*this, key, 0) : fallback;
}

double ConfigReader::number(const std::string& key, Range range) const {
  const auto value = as_number(at(key));
  if (!value || !std::isfinite(*value)) fail(key, "a finite number");
  if (!range.holds(*value)) fail(key, range.to_string());
  return *value;
}

bool ConfigReader::flag(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_boolean()) fail(key, "true or false");
  return at(key).get<bool>();
}

std::string ConfigReader::string(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_string()) fail(key, "a string");
  return at(key).get<std::string>();
}

std::vector<std::int64_t> ConfigReader::integers(const std::string& key) const {
  return read_list(*this, key, "a list of integers", as_integer);
}

std::vector<double> ConfigReader::numbers(const std::string& key, Range range) const {
  return read_list(*this, key, fmt::format("a list of numbers, each {}", range.to_string()),
                   [&](const Json& item) {
                     const auto value = as_number(item);
                     return value && range.holds(*value) ? value : std::nullopt;
                   });
}

std::vector<std::string> ConfigReader::strings(const std::string& key) const {
  return read_list(*this, key, "a list of strings", as_string);
}

void ConfigReader::fail(const std::string& key, const std::string& expected) const {
  std::string found = (*object_)[key].dump(-1, ' ', false, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  bad_input("{}: '{}' is {}, expected {}", where_, key, found, expected);
}

}  // namespace qkscope
