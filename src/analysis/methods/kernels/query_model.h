// Linear model of a head's queries over position: drift rotated onto the first axis, with residual
// variance overall and per bucket. Also weighted fits of the queries around given positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "base/numerics/matrix.h"
#include "base/numerics/sample_statistics.h"
#include "capture/format/buckets.h"

namespace qkscope {

// Distinct values of a list in ascending order, and for every list element the index of its value.
struct DistinctIntegers {
  explicit DistinctIntegers(std::span<const std::int32_t> all);

  std::vector<std::int32_t> numbers;  // ascending
  std::vector<std::int32_t> place;    // (elements): index into `numbers`
};

class BucketRanges {
 public:
  explicit BucketRanges(const SamplerOptions& sampler) : known_(sampler) {}
  // Infers position buckets from the rows of a capture without metadata: equal buckets if
  // floor(position / size) explains every row, else doubling buckets floor(log2(position + 1)).
  BucketRanges(const RowsView& queries, const RowsView& keys);

  PositionRange range(std::int32_t bucket) const;
  // Returns the number of tokens per bucket, or 0 if buckets double in size.
  std::int64_t uniform_bucket_size() const;

  // Returns whether any query in `query_bucket` attends to any key in `key_bucket` with a sliding
  // window of `window` tokens (a query sees itself and the window - 1 keys before it).
  bool window_reaches_bucket(std::int32_t query_bucket, std::int32_t key_bucket,
                             std::int64_t window) const;

 private:
  std::optional<PositionBuckets> known_;
  std::int64_t size_ = 0;          // inferred tokens per bucket; 0: doubling buckets
  std::int32_t first_bucket_ = 0;  // first doubling bucket, which starts at position 0
};

// Mean and variance of the queries of one position bucket in rotated coordinates.
struct QueryBucketGaussian {
  std::int32_t bucket = 0;
  std::int64_t count = 0;
  double position = 0;           // mean position of the queries
  std::vector<double> mean;      // (dim)
  std::vector<double> variance;  // (dim): ddof 1, at least kVarianceFloor; empty below two queries
};

struct LinearQueryModel {
  std::vector<double> sign;        // (dim): sign of the key mean averaged over buckets
  std::vector<double> reflection;  // (dim): Householder vector that maps the first axis to the
                                   // drift; empty for the identity
  std::vector<double> r_squared;   // (dim): R^2 of each original dimension on position
  double r_squared_mean = 0;
  double beta_norm = 0;  // per token

  // Regression of log2(position + 1) on the coordinate along the drift axis.
  double scalar_r_squared = 0;
  double mae_baseline = 0;
  double mae_projection = 0;

  // In rotated coordinates.
  std::vector<double> alpha;                   // (dim): mean query at position 0
  std::vector<double> beta;                    // (dim): per token
  std::vector<double> residual_variance;       // (dim)
  std::vector<NormalityStatistics> normality;  // (dim): normality of residuals; empty without rows
  std::vector<QueryBucketGaussian> buckets;    // ascending by bucket
};

inline constexpr double kVarianceFloor = 1e-12;

// Returns 1 or -1 per dimension: the sign of the key mean averaged over buckets, shared by all
// query heads that read these keys.
std::vector<double> key_mean_signs(const CentredRows& keys);
// Fits queries as a linear function of position. If `bucket_variances` is false, every bucket gets
// the mean over all queries and no variance.
LinearQueryModel fit_query_model(const CentredRows& queries, std::vector<double> signs,
                                 bool bucket_variances = true);

// Sums of u = log2(position + 1) over all queries, to fit a model from moments instead of rows.
struct LogPositionMoments {
  double scatter = 0;                 // sum of (u - mean)^2
  double mean_deviation = 0;          // mean of |u - mean|
  std::vector<double> cross_scatter;  // (dim): sum of centred * (u - mean)
};

// Mean and scatter of the queries of one bucket, before rotation.
struct QueryBucketMoments {
  std::int32_t bucket = 0;
  std::int64_t count = 0;
  double position = 0;       // mean
  std::vector<double> mean;  // (dim)
  Matrix scatter;            // (dim, dim); empty where only means were kept
};

// Like fit_query_model(), but from moments instead of rows: mae_projection is NaN and normality is
// empty. `signs` (dim): signs of the key means.
LinearQueryModel fit_query_model_from_moments(const Moments& queries,
                                              const LogPositionMoments& log_positions,
                                              std::vector<double> signs,
                                              std::span<const QueryBucketMoments> buckets);

// Averages bucket means, shape (buckets, dim), and returns the sign of each dimension; +1 for 0.
std::vector<double> signs_of_bucket_means(const Matrix& means);

// Returns centred rows in the coordinates of the linear query model, whose first axis is the drift
// direction; shape (rows, dim). `order` lists the rows to return; if empty, all rows.
FloatMatrix rotate_centred_rows(const CentredRows& rows, const LinearQueryModel& model,
                                std::span<const std::int64_t> order = {});

// Converts x to the coordinates of the linear query model: flips signs, then applies the
// Householder reflection of the model.
std::vector<double> to_model_basis(std::span<const double> x, const LinearQueryModel& model);

// Rows that enter one weighted least-squares fit, and their weights.
struct RowWindow {
  double centre = 0;  // position
  double scale = 1;   // tokens: half width of the window
  int degree = 1;     // 1: local line; 0: mean
  std::vector<std::int64_t> row;
  std::vector<double> weight;  // (rows of the window)
};

// Epanechnikov weights 1 - d^2 around `centre`. The half width grows from `half_width` in steps of
// 10 % until the effective number of rows (sum w)^2 / sum w^2 reaches kEffectiveRows, or until the
// window extends far beyond all rows. `position` must be ascending.
inline constexpr double kEffectiveRows = 100;
RowWindow epanechnikov_fit_window(std::span<const double> position, double centre,
                                  double half_width);
// Returns a fit window in which each of the given rows has weight 1.
RowWindow uniform_fit_window(std::vector<std::int64_t> rows, double centre, int degree);

// Weighted least-squares fits, one per window; NaN for a window without enough data.
struct WindowFits {
  Matrix mean;      // (windows, dim): at the centre
  Matrix slope;     // (windows, dim): per token; 0 for degree 0
  Matrix variance;  // (windows, dim): of the residuals, at least kVarianceFloor
};

class JackknifeFits {
 public:
  // `rows` (rows, dim) must be centred. `position` and `group` (of texts) have one entry per row.
  JackknifeFits(const FloatMatrix& rows, std::span<const double> position,
                std::span<const int> group, int groups, std::span<const RowWindow> windows);

  // Returns the fits to all texts except those of `group` (jackknife); -1 excludes no texts.
  WindowFits fits_without_group(int group) const;

 private:
  // Sums of w d^k and w^2 d^k (k = 0, 1, 2) over the rows of one window and group, with weight w
  // and scaled distance d to the centre. sums_ has w x, w d x and w x^2 for each coordinate x.
  struct WeightMoments {
    double rows = 0;
    double w[3] = {};
    double w2[3] = {};
  };
  void fit_window(std::int64_t window, int group, WindowFits& fits) const;

  int groups_;
  std::int64_t dim_;
  std::vector<double> scale_;           // (windows)
  std::vector<int> degree_;             // (windows)
  std::vector<WeightMoments> moments_;  // (windows, groups)
  Matrix sums_;                         // (windows, groups, 3 dim)
  Matrix totals_;                       // (windows, 3 dim)
};

// Returns the lower Cholesky factor (dim, dim) of the residual covariance of a window's fit. The
// variances are those of the fit; the correlations are shrunk towards 0 (Ledoit-Wolf intensity).
Matrix shrunk_covariance_cholesky(const FloatMatrix& rows, std::span<const double> position,
                                  const RowWindow& window, const WindowFits& fits,
                                  std::int64_t column);

}  // namespace qkscope
