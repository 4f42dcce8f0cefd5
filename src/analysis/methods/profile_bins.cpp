#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/methods/plasticity.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"

namespace qkscope {
namespace {

std::int64_t context_length_of_rows(const RowsView& queries, const RowsView& keys,
                                    const BucketRanges& buckets) {
  std::int64_t end = 1;
  std::int32_t last_bucket = 0;
  for (const RowsView* rows : {&queries, &keys})
    for (std::size_t i = 0; i < rows->position.size(); ++i) {
      end = std::max(end, rows->position[i] + std::int64_t{1});
      last_bucket = std::max(last_bucket, rows->bucket[i]);
    }
  return buckets.uniform_bucket_size() > 0 ? std::max(end, buckets.range(last_bucket).end) : end;
}

int default_bin_count(const RowsView& queries, std::int64_t used, std::int64_t context,
                      const BucketRanges& buckets) {
  const auto most = static_cast<int>(std::min<std::int64_t>(kMostBinsUnasked, context));
  const double wanted = static_cast<double>(used) / kQueriesPerBin;
  const auto size = buckets.uniform_bucket_size();
  if (size > 0 && context % size == 0 && context / size <= most) {
    const auto count = static_cast<int>(context / size);
    const auto in_each =
        static_cast<int>(std::clamp<std::int64_t>(std::llround(wanted / count), 1, most / count));
    return count * in_each;
  }
  const std::set<std::int32_t> held(queries.bucket.begin(), queries.bucket.end());
  const auto least = std::min(most, static_cast<int>(held.size()));
  return static_cast<int>(std::clamp<std::int64_t>(std::llround(wanted), least, most));
}

}  // namespace

void check_plasticity_bins(const PlasticityOptions& options) {
  constexpr int kMost = PlasticityOptions::kMostBins;
  if (options.profile_bins < PlasticityOptions::kBuckets || options.profile_bins > kMost)
    reject("profile bins: found {}, expected 1 to {}", options.profile_bins, kMost);
  const auto& edges = options.length_bins;
  if (edges.empty()) return;
  if (edges.size() < 2) reject("length bins: found one edge, {}; expected two or more", edges[0]);
  if (edges[0] < 0) reject("length bins: the first edge is {}, expected 0 or more", edges[0]);
  for (std::size_t i = 1; i < edges.size(); ++i)
    if (edges[i] <= edges[i - 1])
      reject("length bins: edge {} follows {}; expected edges that ascend", edges[i], edges[i - 1]);
}

PlasticityGrid choose_plasticity_grid(const RowsView& queries, const RowsView& keys,
                                      const BucketRanges& buckets, std::int64_t used,
                                      const PlasticityOptions& options) {
  PlasticityGrid grid;
  grid.context =
      options.context > 0 ? options.context : context_length_of_rows(queries, keys, buckets);
  if (options.profile_bins == PlasticityOptions::kBuckets) return grid;
  grid.bins = options.profile_bins > 0 ? options.profile_bins
                                       : default_bin_count(queries, used, grid.context, buckets);
  grid.bins = static_cast<int>(std::min<std::int64_t>(grid.bins, grid.context));
  return grid;
}

std::vector<std::int32_t> plasticity_bins_of_rows(const PlasticityGrid& grid,
                                                  const RowsView& rows) {
  if (grid.bins == 0) return {rows.bucket.begin(), rows.bucket.end()};
  return to_vector(rows.position, [&](auto position) { return grid.bin_of_position(position); });
}

std::vector<QueryBin> occupied_query_bins(const PlasticityGrid& grid, const RowsView& queries,
                                          const BucketRanges& buckets,
                                          std::span<const std::int64_t> times) {
  const DistinctIntegers bins(plasticity_bins_of_rows(grid, queries));
  const DistinctIntegers in_buckets(queries.bucket);
  const auto bucket_count = in_buckets.numbers.size();
  struct PositionSum {
    double position = 0;  // sum of integers, exact in float64
    std::int64_t count = 0;
  };
  std::vector<PositionSum> sums(bins.numbers.size());
  std::vector<std::int64_t> held(sums.size() * bucket_count);  // (bins, buckets): queries
  for (std::size_t i = 0; i < bins.place.size(); ++i) {
    const std::int64_t count = times.empty() ? 1 : times[i];
    const auto bin = as_index(bins.place[i]);
    sums[bin].position += static_cast<double>(count * queries.position[i]);
    sums[bin].count += count;
    held[bin * bucket_count + as_index(in_buckets.place[i])] += count;
  }
  std::vector<QueryBin> result;
  result.reserve(sums.size());
  const double width =
      static_cast<double>(grid.context) / static_cast<double>(std::max(1, grid.bins));
  for (std::size_t b = 0; b < sums.size(); ++b) {
    const auto bin = bins.numbers[b];
    const auto most = std::span(held).subspan(b * bucket_count, bucket_count);
    const auto bucket = std::max_element(most.begin(), most.end()) - most.begin();
    QueryBin query{bin,
                   bin * width,
                   (bin + 1) * width,
                   sums[b].position / static_cast<double>(sums[b].count),
                   sums[b].count,
                   in_buckets.numbers[as_index(bucket)]};
    if (grid.bins == 0) {
      const auto range = buckets.range(bin);
      query.low = static_cast<double>(range.begin);
      query.high = static_cast<double>(range.end);
    }
    result.push_back(query);
  }
  return result;
}

}  // namespace qkscope
