// Sampled rows of one head, first and second moments in float64, and the delete-a-group jackknife,
// which recomputes the results of a head without one group of texts at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/numerics/matrix.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"

namespace qkscope {

// Non-owning view of a head's rows. All spans have the same number of rows.
struct RowsView {
  int dim = 0;
  std::span<const float> vectors;             // (rows, dim)
  std::span<const std::int32_t> position;     // (rows)
  std::span<const std::int32_t> example_id;   // (rows)
  std::span<const std::int32_t> bucket;       // (rows)
  std::span<const std::int64_t> example_key;  // (rows): unique text key; empty: use example_id

  std::int64_t size() const { return std::ssize(position); }
  std::int64_t example(std::size_t row) const {
    return example_key.empty() ? example_id[row] : example_key[row];
  }
};

// Returns a view of the rows in the file of one head. `rows` must outlive the view.
RowsView as_rows_view(const HeadRows& rows);
// Returns row numbers sorted by text and position, so that samples do not depend on file order.
std::vector<std::size_t> argsort_by_text_and_position(const RowsView& rows);

// Partition of n texts, sorted by key, into G contiguous groups: text i belongs to group i G / n.
class JackknifeGroups {
 public:
  static constexpr int kMost = 20;

  // Splits the texts that contain a query or a key into min(kMost, number of texts) groups.
  JackknifeGroups(const RowsView& queries, const RowsView& keys);
  // Splits the given texts into groups; they may be unsorted and contain duplicates.
  static JackknifeGroups from_texts(std::vector<std::int64_t> texts);
  // Recreates a partition from first_text_of_each_group(): each group's smallest key, ascending.
  explicit JackknifeGroups(std::vector<std::int64_t> first) : first_(std::move(first)) {}

  int size() const { return static_cast<int>(first_.size()); }
  // Returns the group of a text, given its key (RowsView::example). Keys smaller than all keys of
  // group 0 also map to group 0.
  int group_of(std::int64_t example) const;
  const std::vector<std::int64_t>& first_text_of_each_group() const { return first_; }

 private:
  std::vector<std::int64_t> first_;
};

// First and second central moments of rows of one kind (queries or keys) and of their positions.
// Moments around each kind's own mean can be pooled by addition without cancellation.
struct Moments {
  std::int64_t count = 0;
  std::vector<double> mean;  // (dim)
  Matrix scatter;            // (dim, dim): sum of centred centred^T
  double position_mean = 0;
  double position_scatter = 0;        // sum of (position - mean)^2
  std::vector<double> cross_scatter;  // (dim): sum of centred * (position - mean)

  int dim() const { return static_cast<int>(scatter.cols); }
};

struct CentredRows : Moments {
  RowsView source;
};

CentredRows make_centred_rows(const RowsView& rows);

// Sums over the rows of one group of texts, centred on the means of all rows.
struct RowGroupSums {
  std::int64_t count = 0;
  std::vector<double> sum;  // (dim)
  Matrix scatter;           // (dim, dim)
  double position_sum = 0;
  double position_scatter = 0;
  std::vector<double> cross_scatter;  // (dim)
};

struct GroupedRows {
  CentredRows rows;
  std::vector<RowGroupSums> groups;  // one for each group of texts
};

// Like make_centred_rows(), but also computes sums by group of texts, in one pass over the rows.
GroupedRows make_grouped_rows(const RowsView& rows, const JackknifeGroups& texts);

RowGroupSums sum_row_group(const CentredRows& rows, std::span<const std::int64_t> members);
// Returns the moments of all rows except those of one group of texts.
Moments moments_without_group(const Moments& all, const RowGroupSums& group);

// Writes rows [begin, end) minus the mean to `out` (end - begin, dim). Rows stay in float32 and are
// widened block by block, which halves memory traffic without loss.
void copy_centred_rows(const CentredRows& rows, std::int64_t begin, std::int64_t end, double* out);

// Returns the projections (rows) of the centred rows onto a direction.
std::vector<double> project_on_axis(const CentredRows& rows, std::span<const double> direction);

// Moments of the union of queries and keys.
struct PooledMoments : Moments {
  std::vector<double> delta;  // (dim): mean of the queries - mean of the keys
  double between = 0;         // n_q n_k / (n_q + n_k): weight of delta delta^T in the scatter
};

PooledMoments pool_moments(const Moments& queries, const Moments& keys);
// Returns the cross scatter (dim) of vectors and positions, pooled over queries and keys.
std::vector<double> pooled_cross_scatter(const Moments& queries, const Moments& keys);

// Returns the coordinates (count, rows) of the rows, minus the pooled mean, along the `count`
// directions (count, dim).
Matrix project_rows(const CentredRows& rows, const PooledMoments& pooled, const Matrix& directions);

// Returns the jackknife standard error from the leave-one-group-out values. NaN if a value is NaN
// or there are fewer than two groups.
double jackknife_error(std::span<const double> without);

std::vector<Moments> leave_one_group_out_moments(const GroupedRows& rows);

// Returns the jackknife replicates of `head`, computed from leave-one-group-out moments: first
// component, axes a and b, statistics along them, and means of the plasticity profile. Discriminant
// and active planes are fitted to all texts; only accuracy and variance are recomputed. Statistics
// that need individual rows are NaN, and all are NaN for a replicate without rows.
std::vector<HeadReport> jackknife_replicates(const HeadReport& head,
                                             std::span<const Moments> queries,
                                             std::span<const Moments> keys,
                                             const AnalyzeOptions& options);

}  // namespace qkscope
