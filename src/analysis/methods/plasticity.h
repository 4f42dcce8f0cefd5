// Attention plasticity of a head, and its profile over query positions: bins, Gaussian models of
// the queries at these bins (local, bin, bucket, linear), means over parts of the context, and
// jackknife replicates, which leave out the keys and queries of one group of texts at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/kernels/key_pairs.h"
#include "analysis/methods/kernels/pair_tables.h"
#include "analysis/methods/kernels/query_model.h"
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

struct ProfileMeans {
  double overall = kNoNumber;  // mean over bins weighted by queries
  double first20 = kNoNumber;  // mean of the bins in the first fifth of [low, high)
  double last20 = kNoNumber;   // mean of the bins in the last fifth
  double drop = kNoNumber;     // first20 - last20
};
void set_profile_means(const ProfileMeans& gaussian, const ProfileMeans& free,
                       PlasticityResult& result);

// Returns the means of the Gaussian or the model-free profile with one group of texts left out.
// Ignores bins whose value is NaN.
enum class ProfileKind { gaussian, free };
ProfileMeans profile_means_without_group(const PlasticityResult& result, ProfileKind kind,
                                         int group);

// Computes profile_low, profile_high, profile_bin_means, the head's means, the standard errors of
// all bins and the `gaussian` flag from the profile and its replicates.
void summarize_profile(const PlasticityOptions& options, PlasticityResult& result);

// A Gaussian plasticity profile with the queries and keys from which it was computed.
struct ComputedProfile {
  const SortedQueries& queries;
  const QueryModelPerBin& model;  // its slopes shift queries to the centre of their bin
  std::span<const QueryBin> bins;
  KeyTile keys;  // all
  const SortedKeys& sorted;
  const EligibleKeys& eligible;  // at the model's points
  const TextGroups& texts;
  const PlasticityProfileTables& tables;  // over the model's points
};

// Leaving out the keys of a group is exact. Leaving out its queries changes the query model, and
// the effect on the profile is computed to first order: the gradient of the mean plasticity with
// respect to the model's means and variances, times the change of these parameters. The gradient is
// estimated from a seeded sample of pairs (options.replicate_pairs per point).
ProfileReplicates compute_profile_replicates(const ComputedProfile& source,
                                             const PlasticityOptions& options);

// Fills ap_free, free_pairs and, with replicates, profile_without.free of the result, whose profile
// and Gaussian replicates are known. All pairs of a bin are compared if its texts have at most
// options.free_keys keys. Otherwise a seeded sample of texts is compared, and the mean Gaussian
// plasticity of the same texts serves as control variate: ap_free = ap + mean(free - Gaussian).
void add_model_free_profile(const ComputedProfile& source, const PlasticityOptions& options,
                            PlasticityResult& result);

// Returns 4 n / (n - 1) p (1 - p) with p = k / n, an unbiased estimate of 4 p (1 - p) in the
// population. `product`: k (n - k), or its sum over pairs of keys.
inline double unbiased_plasticity(std::int64_t product, std::int64_t n) {
  return 4 * static_cast<double>(product) / static_cast<double>(n * (n - 1));
}

// Computes the results that need the query model but no keys. Fields that compare keys are NaN or
// empty, and so is normality if the model was fitted without rows.
PlasticityResult plasticity_of_query_model(const LinearQueryModel& model,
                                           const PlasticityOptions& options);

// A fitted query model, the positions of its queries and, if available, their vectors.
struct FittedQueries {
  LinearQueryModel model;
  RowsView positions;                   // distinct positions and their buckets; no vectors
  std::span<const std::int64_t> times;  // (positions): number of queries at each position
  std::int64_t count = 0;               // number of queries
  const CentredRows* rows = nullptr;    // null: no ap_free and no replicates
};

// Runs the full plasticity analysis: compares the query model with the keys of a capture.
PlasticityResult plasticity_of_queries_and_keys(const FittedQueries& queries,
                                                const CentredRows& keys,
                                                const PlasticityOptions& options);

// Fits the query model and runs the full analysis. `signs`: result of key_mean_signs(keys).
PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      std::vector<double> signs, const PlasticityOptions& options);

}  // namespace qkscope
