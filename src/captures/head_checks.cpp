#include "captures/head_checks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>
#include <unordered_set>

#include "core/error.h"

namespace qkscope {
namespace {

// Captures are written example by example, positions ascending: then nothing can be there twice,
// and no sorting is needed to see it.
bool in_capture_order(const HeadRows& rows) {
  std::unordered_set<std::int32_t> seen;
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    const bool same = i > 0 && rows.example_id[i] == rows.example_id[i - 1];
    if (same && rows.position[i] <= rows.position[i - 1]) return false;
    if (!same && !seen.insert(rows.example_id[i]).second) return false;
  }
  return true;
}

}  // namespace

void check_finite(const HeadRows& rows, const std::string& path) {
  const auto dim = static_cast<std::size_t>(rows.head_dim);
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    const float* row = rows.vectors.data() + i * dim;
    // Infinities and NaNs have the largest exponent: the largest bits tell for the whole row.
    std::uint32_t largest = 0;
    for (std::size_t j = 0; j < dim; ++j)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(row[j]) & 0x7FFFFFFFU);
    if (largest < 0x7F800000U) continue;
    const auto j = static_cast<std::size_t>(
        std::find_if_not(row, row + dim, [](float x) { return std::isfinite(x); }) - row);
    bad_input("{}: row {} (example {}, position {}): vector[{}] is {}; expected finite numbers",
              path, i, rows.example_id[i], rows.position[i], j, row[j]);
  }
}

void check_distinct(const HeadRows& rows, const std::string& path) {
  if (in_capture_order(rows)) return;
  std::vector<std::size_t> order(rows.position.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return std::tuple(rows.example_id[i], rows.position[i], i);
  };
  std::sort(order.begin(), order.end(), [&](auto x, auto y) { return key(x) < key(y); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto first = order[i - 1];
    const auto second = order[i];
    if (rows.example_id[first] != rows.example_id[second]) continue;
    if (rows.position[first] != rows.position[second]) continue;
    bad_input("{}: rows {} and {} are both example {}, position {}; expected each token once", path,
              first, second, rows.example_id[first], rows.position[first]);
  }
}

}  // namespace qkscope
