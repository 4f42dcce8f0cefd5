// Replacements for std::views::transform and std::views::keys, and map lookups. clang 14, which
// builds the fuzzers, cannot compile the std::views of libstdc++ 12.
#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

namespace qkscope {

// Returns a vector with projection(element) for every element of a range.
template <typename Range, typename Projection>
auto to_vector(Range&& range, Projection projection) {
  std::vector<std::decay_t<decltype(std::invoke(projection, *std::begin(range)))>> values;
  if constexpr (requires { std::size(range); }) values.reserve(std::size(range));
  for (auto&& element : range) values.push_back(std::invoke(projection, element));
  return values;
}

template <typename Map>
std::vector<std::string> collect_map_keys(const Map& map) {
  return to_vector(map, [](const auto& entry) { return entry.first; });
}

// Returns a pointer to the value of a key, or nullptr if the key is missing.
template <typename Map>
auto find_in_map(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

// Returns the value of a key, or `otherwise` if the key is missing.
template <typename Map>
typename Map::mapped_type map_value_or(const Map& map, const typename Map::key_type& key,
                                       typename Map::mapped_type otherwise) {
  const auto found = map.find(key);
  return found == map.end() ? otherwise : found->second;
}

}  // namespace qkscope
