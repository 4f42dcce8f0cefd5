// Gaussian models of the queries at the bins of the plasticity profile: local, bin, bucket, linear.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/kernels/column_fits.h"
#include "analysis/methods/kernels/pair_tables.h"
#include "analysis/methods/moments.h"
#include "analysis/methods/profile_bins.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Queries in rotated coordinates, centred on their mean, sorted by position.
struct SortedQueries {
  FloatMatrix vectors;                                 // (rows, dim)
  std::vector<double> position;                        // (rows)
  std::vector<std::int32_t> bucket;                    // (rows)
  std::vector<int> group;                              // (rows): group of texts
  std::vector<double> mean;                            // (dim): rotated mean of all queries
  std::vector<std::vector<std::int64_t>> rows_of_bin;  // row numbers of each bin with queries
};
SortedQueries sort_queries(const CentredRows& queries, const LinearQueryModel& model,
                           const ProfileGrid& grid, const TextGroups& texts);

// Positions (knots) at which the local model is fitted: bin centres at most half a bucket apart,
// including the first and the last bin. z is linearly interpolated between knots.
struct LocalFitKnots {
  std::vector<double> position;    // (knots)
  std::vector<double> half_width;  // (knots): tokens, one bucket
  std::vector<std::int32_t> knot;  // (bins): the knot at or before the bin's centre
  std::vector<double> fraction;    // (bins): interpolation weight of the next knot
};

// Gaussian models of the queries in each position bin of a plasticity profile, and the fits from
// which jackknife replicates are computed.
struct QueryModelPerBin {
  QueryModelsAtPoints side;
  std::optional<GroupedFits> fits;  // fits of the columns; empty without rows
  std::optional<GroupedFits> line;  // fits of the drift coordinate; only for `bucket`
  Matrix slope;                     // (knots, dim): slopes of the local fits; empty without rows
  LocalFitKnots knots;

  // Returns the fits of all columns without one group of texts; -1 includes all texts.
  WindowFits fits_without_group(int group) const;
};

// Fits the query model named by options.profile_model. If `queries` is null (statistics without
// rows), "local" interpolates between bucket means and "bin" is empty.
QueryModelPerBin fit_query_model_per_bin(const LinearQueryModel& model,
                                         std::span<const QueryBin> bins,
                                         const BucketRanges& buckets, const SortedQueries* queries,
                                         int groups, const PlasticityOptions& options);

// Returns the linear model at the mean position of every bucket, for the bucket table.
QueryModelsAtPoints linear_model_at_buckets(const LinearQueryModel& model);

}  // namespace qkscope
