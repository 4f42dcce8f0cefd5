// Queries in a model's rotated coordinates, one line per coordinate, a few coordinates at a time:
// what is computed from a line then happens in the second cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/kernels/query_model.h"

namespace qkscope {

// Rows [begin, end) of the lines belong to one bucket.
struct BucketSpan {
  std::int32_t bucket = 0;
  double position = 0;  // mean over its rows
  std::size_t begin = 0;
  std::size_t end = 0;
};

class RotatedLines {
 public:
  static constexpr std::int64_t kLines = 16;

  // Takes the model's signs and reflection.
  RotatedLines(const CentredRows& queries, const QueryModel& model);

  const std::vector<BucketSpan>& buckets() const { return buckets_; }
  // Position minus the queries' mean position, in the lines' order.
  std::span<const double> time() const { return time_; }

  // Coordinates first .. first + kLines - 1, fewer at the end.
  void take(std::int64_t first);
  std::span<double> line(std::int64_t i) {
    return {lines_.row(i), static_cast<std::size_t>(lines_.cols)};
  }

 private:
  const CentredRows& queries_;
  const QueryModel& model_;
  std::vector<BucketSpan> buckets_;
  std::vector<std::int64_t> order_;  // (rows): bucket after bucket
  std::vector<double> time_;         // (rows)
  std::vector<double> reflected_;    // (rows): 2 w.x of the reflection, in order
  Matrix lines_;                     // (kLines, rows)
};

}  // namespace qkscope
