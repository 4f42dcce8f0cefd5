#include "analysis/kernels/rotated_lines.h"

#include <algorithm>
#include <map>

namespace qkscope {

RotatedLines::RotatedLines(const CentredRows& queries, const QueryModel& model)
    : queries_(queries), model_(model), lines_(kLines, queries.size()) {
  std::map<std::int32_t, std::vector<std::int64_t>> rows_of;
  for (std::int64_t i = 0; i < queries.size(); ++i)
    rows_of[queries.source.bucket[static_cast<std::size_t>(i)]].push_back(i);
  for (const auto& [bucket, rows] : rows_of) {
    double positions = 0;  // whole numbers: their sum is exact
    for (const auto i : rows) positions += queries.source.position[static_cast<std::size_t>(i)];
    buckets_.push_back({bucket, positions / static_cast<double>(rows.size()), order_.size(),
                        order_.size() + rows.size()});
    order_.insert(order_.end(), rows.begin(), rows.end());
  }
  // The reflection in the rows' own signs.
  std::vector<double> w(model.sign);
  for (std::size_t j = 0; j < w.size(); ++j)
    w[j] *= model.reflection.empty() ? 0 : model.reflection[j];
  const CentredProjection along(queries, w);
  for (const auto i : order_) {
    time_.push_back(queries.source.position[static_cast<std::size_t>(i)] - queries.position_mean);
    reflected_.push_back(2 * along(i));
  }
}

void RotatedLines::take(std::int64_t first) {
  const auto dim = queries_.dim();
  const auto count = std::min<std::int64_t>(kLines, dim - first);
  double sign[kLines] = {};
  double mean[kLines] = {};
  double w[kLines] = {};
  for (std::int64_t j = 0; j < count; ++j) {
    const auto at = static_cast<std::size_t>(first + j);
    sign[j] = model_.sign[at];
    mean[j] = queries_.mean[at];
    w[j] = model_.reflection.empty() ? 0 : model_.reflection[at];
  }
  constexpr std::int64_t kRows = 8;   // a cache line of every output line
  constexpr std::size_t kAhead = 32;  // rows; they come in an order that no hardware foresees
  for (std::int64_t begin = 0; begin < lines_.cols; begin += kRows) {
    const auto rows = std::min(kRows, lines_.cols - begin);
    double block[kRows][kLines];
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto at = static_cast<std::size_t>(begin + i);
      const float* const x = queries_.source.vectors.data() + order_[at] * dim + first;
      const auto later = std::min(at + kAhead, order_.size() - 1);
      __builtin_prefetch(queries_.source.vectors.data() + order_[later] * dim + first);
      for (std::int64_t j = 0; j < count; ++j)
        block[i][j] = sign[j] * (x[j] - mean[j]) - reflected_[at] * w[j];
    }
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t i = 0; i < rows; ++i) lines_(j, begin + i) = block[i][j];
  }
}

}  // namespace qkscope
