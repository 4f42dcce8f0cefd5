#include "capture/stats_run/exact_rows.h"

#include <algorithm>
#include <numeric>

#include "base/core/index.h"
#include "base/core/thread_pool.h"

namespace qkscope {
namespace {

constexpr std::int64_t kMostFloats = std::int64_t{1} << 24;  // limit of the pattern buffer

}  // namespace

std::vector<std::int64_t> spread_rows(std::int64_t length, std::int64_t count) {
  count = std::min(count, length);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 1; i <= count; ++i) rows.push_back(i * length / count - 1);
  return rows;
}

std::vector<double> sorted_values(std::span<const float> pattern) {
  std::vector<float> p(pattern.begin(), pattern.end());
  std::sort(p.begin(), p.end(), std::greater<>());
  std::vector<double> held(p.size());  // cumulative mass of the largest keys
  std::inclusive_scan(p.begin(), p.end(), held.begin(), std::plus<>(), 0.0);
  std::vector<double> values;
  for (const double share : kKeyShare) {
    const auto enough = std::lower_bound(held.begin(), held.end(), share * held.back());
    values.push_back(static_cast<double>(enough - held.begin()) + 1.0);
  }
  for (const auto top : kTopKey) values.push_back(held[std::min(as_index(top), held.size()) - 1]);
  return values;
}

std::vector<std::vector<double>> exact_rows(Backend& backend, const Sequence& sequence,
                                            std::int64_t longest, std::int64_t count) {
  const auto heads = backend.config().n_heads;
  const auto positions = spread_rows(sequence.length, count);
  const auto at_once = std::max<std::int64_t>(1, kMostFloats / (heads * longest));
  std::vector<std::vector<double>> means(as_index(heads),
                                         std::vector<double>(kKeyShares + kTopKeys));
  for (std::int64_t begin = 0; begin < std::ssize(positions); begin += at_once) {
    std::vector<std::int64_t> rows;
    for (auto i = begin; i < std::min(begin + at_once, std::ssize(positions)); ++i)
      rows.push_back(sequence.begin + positions[as_index(i)]);
    Tensor pattern({heads, std::ssize(rows), longest});
    backend.score_rows({.rows = rows, .scores = {}, .pattern = pattern});
    parallel_for(heads, [&](std::int64_t head) {
      for (std::int64_t r = 0; r < std::ssize(rows); ++r) {
        const float* p = pattern.data<float>() + (head * std::ssize(rows) + r) * longest;
        const auto values = sorted_values({p, as_index(rows[as_index(r)] - sequence.begin + 1)});
        auto& mean = means[as_index(head)];
        for (std::size_t v = 0; v < values.size(); ++v)
          mean[v] += values[v] / static_cast<double>(positions.size());
      }
    });
  }
  return means;
}

}  // namespace qkscope
