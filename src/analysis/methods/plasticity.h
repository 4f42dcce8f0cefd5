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

// Bins of the plasticity profile: the same for all heads, so that their profiles can be averaged.
struct PlasticityGrid {
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
void check_plasticity_bins(const PlasticityOptions& options);

// Chooses the profile bins for a head's rows; explicit options take precedence. The context ends
// with the last bucket that has rows (equal buckets) or after the last row. The number of bins, at
// most 1,024, aims at 50 of the `used` queries per bin: a whole number of bins per bucket if
// buckets are equal, else at least one bin per bucket with queries; at most one bin per token.
PlasticityGrid choose_plasticity_grid(const RowsView& queries, const RowsView& keys,
                                      const BucketRanges& buckets, std::int64_t used,
                                      const PlasticityOptions& options);

std::vector<std::int32_t> plasticity_bins_of_rows(const PlasticityGrid& grid, const RowsView& rows);

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
std::vector<QueryBin> occupied_query_bins(const PlasticityGrid& grid, const RowsView& queries,
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
SortedQueries sort_queries_by_position(const CentredRows& queries, const LinearQueryModel& model,
                                       const PlasticityGrid& grid, const JackknifeGroups& texts);

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
struct QueryModelsByBin {
  QueryModelsAtPoints side;
  std::optional<JackknifeFits> fits;  // fits of the columns; empty without rows
  std::optional<JackknifeFits> line;  // fits of the drift coordinate; only for model "bucket"
  Matrix slope;                       // (knots, dim): slopes of the local fits; empty without rows
  LocalFitKnots knots;

  // Returns the fits of all columns to all texts except those of `group`; -1 excludes no texts.
  WindowFits fits_without_group(int group) const;
};

// Fits a query model per bin, of the kind in options.profile_model. If `queries` is null (no rows),
// the model "local" interpolates between bucket means and the model "bin" is empty.
QueryModelsByBin fit_query_models_by_bin(const LinearQueryModel& model,
                                         std::span<const QueryBin> bins,
                                         const BucketRanges& buckets, const SortedQueries* queries,
                                         int groups, const PlasticityOptions& options);

// Linear query model at each bucket's mean position, for BucketAndProfileTables::buckets.
QueryModelsAtPoints evaluate_linear_model_at_buckets(const LinearQueryModel& model);

struct PlasticityMeans {
  double overall = kNoNumber;  // mean over bins weighted by queries
  double first20 = kNoNumber;  // mean of the bins in the first fifth of [low, high)
  double last20 = kNoNumber;   // mean of the bins in the last fifth
  double drop = kNoNumber;     // first20 - last20
};
void set_plasticity_means(const PlasticityMeans& gaussian, const PlasticityMeans& free,
                          PlasticityResult& result);

// Returns the means of the Gaussian or the model-free plasticity profile with one group of texts
// left out. Ignores bins whose value is NaN.
enum class PlasticityKind { gaussian, free };
PlasticityMeans plasticity_means_without_group(const PlasticityResult& result, PlasticityKind kind,
                                               int group);

// Computes profile_low, profile_high, profile_bin_means, the head's means, the standard errors of
// all bins and the `gaussian` flag from the profile and its replicates.
void summarize_plasticity_profile(const PlasticityOptions& options, PlasticityResult& result);

// A Gaussian plasticity profile with the queries and keys from which it was computed.
struct GaussianPlasticityProfile {
  const SortedQueries& queries;
  const QueryModelsByBin& model;  // its slopes shift queries to the centre of their bin
  std::span<const QueryBin> bins;
  KeyTile keys;  // all
  const SortedKeys& sorted;
  const EligibleKeys& eligible;  // at the model's points
  const JackknifeGroups& texts;
  const PlasticityProfileTables& tables;  // over the model's points
};

// Computes the jackknife replicates of a profile. Leaving out the keys of a group is exact. Leaving
// out its queries changes the query model, and the effect on the profile is computed to first
// order: the gradient of the mean plasticity with respect to means and variances, times the
// change of these parameters. The gradient is estimated from a seeded sample of pairs of keys
// (options.replicate_pairs per point).
ProfileReplicates compute_plasticity_replicates(const GaussianPlasticityProfile& source,
                                                const PlasticityOptions& options);

// Fills ap_free, free_pairs and, with replicates, profile_without.free of the result, whose profile
// and Gaussian replicates are known. All pairs of a bin are compared if its texts have at most
// options.free_keys keys. Otherwise a seeded sample of texts is compared, and the mean Gaussian
// plasticity of the same texts serves as control variate: ap_free = ap + mean(free - Gaussian).
void add_model_free_profile(const GaussianPlasticityProfile& source,
                            const PlasticityOptions& options, PlasticityResult& result);

// Returns an unbiased estimate of plasticity, 4 k (n - k) / (n (n - 1)), if k of n queries prefer
// the first of two keys. `product`: k (n - k), or the sum of k (n - k) over pairs of keys.
inline double unbiased_plasticity(std::int64_t product, std::int64_t n) {
  return 4 * static_cast<double>(product) / static_cast<double>(n * (n - 1));
}

// Computes the results that depend on the query model alone. Results that depend on keys are NaN or
// empty. The normality statistics are NaN if the model was fitted to moments instead of rows.
PlasticityResult plasticity_of_query_model(const LinearQueryModel& model,
                                           const PlasticityOptions& options);

// Queries of a head: their linear model, their positions and, if available, their vectors.
struct ModelledQueries {
  LinearQueryModel model;
  RowsView positions;                   // distinct positions and their buckets; no vectors
  std::span<const std::int64_t> times;  // (positions): number of queries at each position
  std::int64_t count = 0;               // number of queries
  const CentredRows* rows = nullptr;    // null: no ap_free and no replicates
};

// Computes plasticity: how often two of the given keys change order over the modelled queries.
PlasticityResult plasticity_of_queries_and_keys(const ModelledQueries& queries,
                                                const CentredRows& keys,
                                                const PlasticityOptions& options);

// Fits the query model, then computes plasticity. `signs`: result of key_mean_signs(keys).
PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      std::vector<double> signs, const PlasticityOptions& options);

}  // namespace qkscope
