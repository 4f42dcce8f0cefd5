#include "base/numerics/rank_correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/core/nan.h"
#include "base/numerics/correlation.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    auto end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = 0.5 * static_cast<double>(begin + end - 1);
    for (auto i = begin; i < end; ++i) ranks[order[i]] = rank;
    begin = end;
  }
  return ranks;
}

Correlation pearson_of(std::span<const double> x, std::span<const double> y) {
  const auto [xx, xy, yy] = centred_products(x, y);
  return correlation(xy, xx, yy, std::ssize(x));
}

}  // namespace

PairCorrelation correlate(std::span<const double> x, std::span<const double> y) {
  std::vector<double> both_x;
  std::vector<double> both_y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i])) continue;
    both_x.push_back(x[i]);
    both_y.push_back(y[i]);
  }
  PairCorrelation result{std::ssize(both_x), {kNan, kNan, kNan}, {kNan, kNan, kNan}};
  if (result.n < 3) return result;
  result.pearson = pearson_of(both_x, both_y);
  result.spearman = pearson_of(ranks_of(both_x), ranks_of(both_y));
  return result;
}

}  // namespace qkscope
