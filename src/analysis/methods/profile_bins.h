// Bins of query positions for the plasticity profile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/kernels/bucket_ranges.h"
#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Number of bins and context length, shared by all heads, so that profiles can be averaged.
struct ProfileGrid {
  int bins = 0;              // of equal width; 0: the capture's buckets are the bins
  std::int64_t context = 0;  // tokens

  // Returns the bin of a position. Must be called only if the bins have equal width.
  std::int32_t bin_of_position(std::int64_t position) const {
    return static_cast<std::int32_t>(position * bins / context);
  }
};

inline constexpr int kQueriesPerBin = 50;
inline constexpr int kMostBinsUnasked = 1024;

// Throws a bad-input error for invalid profile_bins or length_bins.
void check_profile_options(const PlasticityOptions& options);

// Chooses the grid for a head's rows; explicit options win. The context ends with the last bucket
// that has rows (equal buckets) or after the last row. The number of bins is chosen for about 50 of
// the `used` queries per bin, at most 1,024 bins: a whole number of bins per bucket if buckets are
// equal, else at least one bin per bucket with queries, and never more than one bin per token.
ProfileGrid choose_profile_grid(const RowsView& queries, const RowsView& keys,
                                const BucketRanges& buckets, std::int64_t used,
                                const PlasticityOptions& options);

std::vector<std::int32_t> profile_bins_of_rows(const ProfileGrid& grid, const RowsView& rows);

// A bin of query positions with at least one query.
struct QueryBin {
  std::int32_t bin = 0;
  double low = 0;  // positions [low, high)
  double high = 0;
  double position = 0;  // mean over its queries
  std::int64_t queries = 0;
  std::int32_t bucket = 0;  // bucket of most of its queries; ties go to the lower one

  double centre() const { return 0.5 * (low + high); }
};

// Returns the bins with at least one query, ascending. `times` (rows): number of queries that each
// row represents; if empty, each row is one query.
std::vector<QueryBin> occupied_query_bins(const ProfileGrid& grid, const RowsView& queries,
                                          const BucketRanges& buckets,
                                          std::span<const std::int64_t> times = {});

}  // namespace qkscope
