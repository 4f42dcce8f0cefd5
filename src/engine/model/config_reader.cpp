#include "engine/model/config_reader.h"

#include <cmath>

#include "base/core/error.h"
#include "base/io/json.h"

namespace qkscope {
namespace {

// Sizes beyond this are nonsense, could overflow a product of two and do not fit the kernels' int.
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

bool ConfigReader::mentions(const std::string& key) const {
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
  const auto value = as_integer(at(key));
  if (!value || *value <= 0 || *value > kMaxCount)
    complain(key, fmt::format("an integer from 1 to {}", kMaxCount));
  return *value;
}

std::int64_t ConfigReader::count(const std::string& key, std::int64_t otherwise) const {
  return has(key) ? count(key) : otherwise;
}

std::int64_t ConfigReader::natural(const std::string& key, std::int64_t otherwise) const {
  if (!has(key)) return otherwise;
  const auto value = as_integer(at(key));
  if (!value || *value < 0 || *value > kMaxCount)
    complain(key, fmt::format("an integer from 0 to {}", kMaxCount));
  return *value;
}

double ConfigReader::number(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) complain(key, "a finite number");
  return value.get<double>();
}

double ConfigReader::number(const std::string& key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

double ConfigReader::number(const std::string& key, Range range) const {
  const double value = number(key);
  if (!range.holds(value)) complain(key, range.to_string());
  return value;
}

double ConfigReader::number(const std::string& key, double otherwise, Range range) const {
  return has(key) ? number(key, range) : otherwise;
}

bool ConfigReader::flag(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) complain(key, "true or false");
  return at(key).get<bool>();
}

std::string ConfigReader::word(const std::string& key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_string()) complain(key, "a string");
  return at(key).get<std::string>();
}

std::vector<std::int64_t> ConfigReader::integers(const std::string& key) const {
  const Json& list = at(key);
  if (!list.is_array()) complain(key, "a list of integers");
  std::vector<std::int64_t> values;
  for (const auto& item : list) {
    const auto value = as_integer(item);
    if (!value) complain(key, "a list of integers");
    values.push_back(*value);
  }
  return values;
}

std::vector<double> ConfigReader::numbers(const std::string& key, Range range) const {
  const Json& list = at(key);
  const auto wanted = fmt::format("a list of numbers, each {}", range.to_string());
  if (!list.is_array()) complain(key, wanted);
  std::vector<double> values;
  for (const auto& item : list) {
    if (!item.is_number() || !range.holds(item.get<double>())) complain(key, wanted);
    values.push_back(item.get<double>());
  }
  return values;
}

std::vector<std::string> ConfigReader::words(const std::string& key) const {
  const Json& list = at(key);
  if (!list.is_array()) complain(key, "a list of strings");
  std::vector<std::string> values;
  for (const auto& item : list) {
    if (!item.is_string()) complain(key, "a list of strings");
    values.push_back(item.get<std::string>());
  }
  return values;
}

void ConfigReader::complain(const std::string& key, const std::string& expected) const {
  std::string found = (*object_)[key].dump(-1, ' ', false, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  bad_input("{}: '{}' is {}, expected {}", where_, key, found, expected);
}

}  // namespace qkscope
