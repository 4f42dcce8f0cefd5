#include "mutate_json.h"

#include <array>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

namespace qkscope {
namespace {

// Preserves the order of keys, which some readers depend on.
using Json = nlohmann::ordered_json;

constexpr std::size_t kLargest = 1 << 14;  // limit in bytes of the text that is parsed
constexpr std::array kAwkward = {"null",
                                 "true",
                                 "false",
                                 "0",
                                 "-1",
                                 "1",
                                 "2",
                                 "0.5",
                                 "-0.0",
                                 "1e-300",
                                 "1e300",
                                 "255",
                                 "65536",
                                 "2147483647",
                                 "2147483648",
                                 "4294967296",
                                 "9223372036854775807",
                                 "18446744073709551615",
                                 "\"\"",
                                 "\"a\"",
                                 "\" \"",
                                 "\"\\u0000\"",
                                 "\"\\ud83d\\ude00\"",
                                 "[]",
                                 "{}",
                                 "[[]]",
                                 "{\"\":{}}",
                                 "\"../x\"",
                                 "\".*\""};

class JsonMutator {
 public:
  JsonMutator(Json root, std::uint64_t seed) : root_(std::move(root)), random_(seed) {
    collect(root_);
  }

  Json run() {
    Json& place = *values_[below(values_.size())];
    switch (below(6)) {
      case 0:
        place = Json::parse(kAwkward[below(kAwkward.size())]);
        break;
      case 1:
        place = Json(*values_[below(values_.size())]);
        break;
      case 2:
        remove_from(place);
        break;
      case 3:
        double_in(place);
        break;
      case 4:
        rename_in(place);
        break;
      default:
        change_scalar(place);
    }
    return std::move(root_);
  }

 private:
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void collect(Json& value) {
    values_.push_back(&value);
    if (value.is_structured())
      for (auto& item : value) collect(item);
  }

  void remove_from(Json& place) {
    if (place.is_array() && !place.empty()) place.erase(below(place.size()));
    if (place.is_object() && !place.empty()) place.erase(key_in(place));
  }

  void double_in(Json& place) {
    if (place.is_array() && !place.empty()) place.push_back(Json(place[below(place.size())]));
    if (place.is_object() && !place.empty()) {
      const auto key = key_in(place);
      place[key + "2"] = Json(place[key]);
    }
  }

  // Moves a value to the key of another one.
  void rename_in(Json& place) {
    if (!place.is_object() || place.empty()) return;
    const auto from = key_in(place);
    const auto to = key_in(place);
    Json value = place[from];
    place[to] = std::move(value);
  }

  void change_scalar(Json& place) {
    if (place.is_string()) {
      auto text = place.get<std::string>();
      const auto at = below(text.size() + 1);
      if (below(2) == 0)
        text.insert(at, 1, static_cast<char>(' ' + below(95)));
      else
        text.erase(at, 1 + below(3));
      place = text;
    } else if (place.is_number_integer()) {
      place = place.get<std::int64_t>() / 2 + static_cast<std::int64_t>(below(5)) - 2;
    } else if (place.is_number_float()) {
      place = place.get<double>() * (below(2) == 0 ? -1.0 : 1e6);
    } else if (place.is_boolean()) {
      place = !place.get<bool>();
    }
  }

  std::string key_in(const Json& object) {
    auto at = object.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(object.size())));
    return at.key();
  }

  Json root_;
  std::mt19937_64 random_;
  std::vector<Json*> values_;
};

// Limits the depth, because values are visited recursively.
bool is_shallow(std::string_view text) {
  int depth = 0, deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest < 100;
}

}  // namespace

std::string mutate_json(std::string_view text, std::uint64_t seed) {
  const auto end = text.find_last_of("}]") + 1;  // 0 if there is none
  const auto head = text.substr(0, end);
  if (end == 0 || end > kLargest || !is_shallow(head)) return std::string(text);
  auto json = Json::parse(head, nullptr, false);
  if (json.is_discarded()) return std::string(text);
  const auto changed = JsonMutator(std::move(json), seed).run();
  return changed.dump(-1, ' ', false, Json::error_handler_t::replace) +
         std::string(text.substr(end));
}

}  // namespace qkscope
