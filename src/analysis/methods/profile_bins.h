// Bins of query positions over which the plasticity profile is taken.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/kernels/bucket_ranges.h"
#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// How many bins, over which context. The heads of a capture share it, so that their profiles can be
// averaged bin by bin.
struct ProfileGrid {
  int bins = 0;              // of equal width; 0: the capture's buckets are the bins
  std::int64_t context = 0;  // tokens

  // Of a position, where bins have equal width.
  std::int32_t bin(std::int64_t position) const {
    return static_cast<std::int32_t>(position * bins / context);
  }
};

inline constexpr int kQueriesPerBin = 50;
inline constexpr int kMostBinsUnasked = 1024;

// Options that cannot be meant are bad input.
void check_profile_options(const PlasticityOptions& options);

// What the options leave open is decided by a head's rows. The context ends with the last bucket
// that holds a row where buckets are equal, else behind the last row. As many bins as there are 50
// queries, at most 1,024: with equal buckets a whole number in each, at least one; else at least
// one for every bucket that holds a query. Never more than one per token.
// `used`: queries that will be.
ProfileGrid profile_grid(const Rows& queries, const Rows& keys, const BucketRanges& buckets,
                         std::int64_t used, const PlasticityOptions& options);

// The bin of each row.
std::vector<std::int32_t> profile_bins_of(const ProfileGrid& grid, const Rows& rows);

// A bin and its queries.
struct QueryBin {
  std::int32_t bin = 0;
  double low = 0;  // positions [low, high)
  double high = 0;
  double position = 0;  // mean over its queries
  std::int64_t queries = 0;
  std::int32_t bucket = 0;  // that most of its queries are in; the first of several

  double centre() const { return 0.5 * (low + high); }
};

// Bins that hold queries, ascending. `times` (rows): how many queries each row stands for; empty:
// one.
std::vector<QueryBin> query_bins(const ProfileGrid& grid, const Rows& queries,
                                 const BucketRanges& buckets,
                                 std::span<const std::int64_t> times = {});

}  // namespace qkscope
