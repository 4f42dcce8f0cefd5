// project() and collect_map_keys() copy one member of every element. They replace std::views,
// because clang 14, which builds the fuzzers, cannot compile the std::views of libstdc++ 12.
#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

namespace qkscope {

// Returns a vector with projection(element) for every element of a range.
template <typename Range, typename Projection>
auto project(const Range& range, Projection projection) {
  std::vector<std::decay_t<decltype(std::invoke(projection, *std::begin(range)))>> values;
  for (const auto& element : range) values.push_back(std::invoke(projection, element));
  return values;
}

template <typename Map>
std::vector<std::string> collect_map_keys(const Map& map) {
  return project(map, [](const auto& entry) { return entry.first; });
}

}  // namespace qkscope
