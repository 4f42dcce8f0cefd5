#include "analysis/methods/kernels/query_replicates.h"

#include <algorithm>
#include <cmath>

#include "base/core/nan.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

std::vector<std::int32_t> distinct_buckets(const Rows& rows) {
  std::vector<std::int32_t> buckets(rows.bucket.begin(), rows.bucket.end());
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  return buckets;
}

std::size_t place_of(std::span<const std::int32_t> buckets, std::int32_t bucket) {
  return static_cast<std::size_t>(std::lower_bound(buckets.begin(), buckets.end(), bucket) -
                                  buckets.begin());
}

// Rows of one bucket and one group of texts, or of several of them.
struct CellSums {
  double count = 0;
  double position = 0;          // around the mean position of all rows
  double position_squares = 0;  // likewise
  std::vector<double> sum;      // (dim): around the mean of all rows
  std::vector<double> squares;  // (dim)
  std::vector<double> cross;    // (dim): with position

  explicit CellSums(std::size_t dim) : sum(dim), squares(dim), cross(dim) {}

  void add(const double* x, double t) {
    count += 1;
    position += t;
    position_squares += t * t;
    for (std::size_t j = 0; j < sum.size(); ++j) {
      sum[j] += x[j];
      squares[j] += x[j] * x[j];
      cross[j] += x[j] * t;
    }
  }
  void add(const CellSums& other, double factor = 1) {
    count += factor * other.count;
    position += factor * other.position;
    position_squares += factor * other.position_squares;
    add_scaled(factor, other.sum, sum);
    add_scaled(factor, other.squares, squares);
    add_scaled(factor, other.cross, cross);
  }
};

// Rows that are centred together.
constexpr std::int64_t kBlockRows = 256;

// The rows of each bucket, by their groups.
class GroupedBuckets {
 public:
  GroupedBuckets(const CentredRows& rows, const TextGroups& texts);

  const std::vector<std::int32_t>& buckets() const { return buckets_; }
  const std::vector<std::int64_t>& rows_of(std::size_t bucket) const { return members_[bucket]; }
  std::size_t group_of(std::int64_t row) const { return group_[static_cast<std::size_t>(row)]; }
  // A bucket without the rows of a group.
  CellSums without(std::size_t bucket, std::size_t group) const {
    CellSums rest = whole_[bucket];
    rest.add(cells_[bucket * groups_ + group], -1);
    return rest;
  }

 private:
  std::size_t groups_;
  std::vector<std::int32_t> buckets_;               // ascending
  std::vector<std::vector<std::int64_t>> members_;  // (buckets)
  std::vector<std::size_t> group_;                  // (rows)
  std::vector<CellSums> cells_;                     // (buckets, groups)
  std::vector<CellSums> whole_;                     // (buckets)
};

GroupedBuckets::GroupedBuckets(const CentredRows& rows, const TextGroups& texts)
    : groups_(static_cast<std::size_t>(texts.size())),
      buckets_(distinct_buckets(rows.source)),
      members_(buckets_.size()) {
  const auto dim = static_cast<std::size_t>(rows.dim());
  cells_.assign(buckets_.size() * groups_, CellSums(dim));
  whole_.assign(buckets_.size(), CellSums(dim));
  std::vector<double> block(static_cast<std::size_t>(kBlockRows) * dim);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto in_block = i % kBlockRows;
    if (in_block == 0) copy_centred(rows, i, std::min(i + kBlockRows, rows.size()), block.data());
    const auto bucket = place_of(buckets_, rows.source.bucket[at]);
    group_.push_back(static_cast<std::size_t>(texts.of(rows.source.example(at))));
    members_[bucket].push_back(i);
    cells_[bucket * groups_ + group_.back()].add(
        block.data() + static_cast<std::size_t>(in_block) * dim,
        rows.source.position[at] - rows.position_mean);
  }
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (std::size_t group = 0; group < groups_; ++group)
      whole_[bucket].add(cells_[bucket * groups_ + group]);
}

// Sums of the keys of each bucket and group of texts.
class KeySums {
 public:
  KeySums(const Rows& keys, const TextGroups& texts)
      : groups_(texts.size()),
        buckets_(distinct_buckets(keys)),
        sums_(std::ssize(buckets_) * groups_, keys.dim),
        counts_(std::ssize(buckets_), groups_) {
    const float* x = keys.vectors.data();
    for (std::size_t i = 0; i < keys.position.size(); ++i, x += keys.dim) {
      const auto bucket = static_cast<std::int64_t>(place_of(buckets_, keys.bucket[i]));
      const auto group = texts.of(keys.example(i));
      counts_(bucket, group) += 1;
      add_rows(x, 1, sum(bucket, group));
    }
  }

  // The sign of the mean over buckets of the keys' mean in each, as with all texts.
  std::vector<double> signs_without(std::int64_t left_out) {
    std::vector<double> mean(static_cast<std::size_t>(sums_.cols));
    for (std::int64_t bucket = 0; bucket < counts_.rows; ++bucket) {
      std::vector<double> total(mean.size());
      double count = 0;
      for (std::int64_t group = 0; group < groups_; ++group) {
        if (group == left_out) continue;
        count += counts_(bucket, group);
        add_scaled(1, sum(bucket, group), total);
      }
      if (count > 0) add_scaled(1 / count, total, mean);
    }
    for (double& value : mean) value = value < 0 ? -1 : 1;
    return mean;
  }

 private:
  std::span<double> sum(std::int64_t bucket, std::int64_t group) {
    return {sums_.row(bucket * groups_ + group), static_cast<std::size_t>(sums_.cols)};
  }

  std::int64_t groups_;
  std::vector<std::int32_t> buckets_;
  Matrix sums_;    // (buckets, groups, dim)
  Matrix counts_;  // (buckets, groups)
};

// All queries that are left.
struct Rest {
  CellSums sums;
  double position_mean = 0;
  double position_scatter = 0;
  std::vector<double> mean;   // (dim)
  std::vector<double> slope;  // (dim): per token
};

Rest rest_without(const CentredRows& queries, const GroupedBuckets& buckets, std::size_t group) {
  const auto dim = static_cast<std::size_t>(queries.dim());
  Rest rest{CellSums(dim), 0, 0, queries.mean, std::vector<double>(dim)};
  CellSums& sums = rest.sums;
  for (std::size_t b = 0; b < buckets.buckets().size(); ++b) sums.add(buckets.without(b, group));
  if (sums.count == 0) return rest;
  const double moved = sums.position / sums.count;
  rest.position_mean = queries.position_mean + moved;
  rest.position_scatter = sums.position_squares - sums.count * moved * moved;
  add_scaled(1 / sums.count, sums.sum, rest.mean);
  // Positions are whole numbers: what is left of a scatter that is nothing is rounding.
  if (!(rest.position_scatter > 1e-12 * sums.position_squares)) return rest;
  rest.slope = sums.cross;
  add_scaled(-moved, sums.sum, rest.slope);
  for (double& x : rest.slope) x /= rest.position_scatter;
  return rest;
}

std::vector<double> turned(std::span<const double> x, const QueryReplicate& model) {
  std::vector<double> result(model.sign);
  for (std::size_t j = 0; j < x.size(); ++j) result[j] *= x[j];
  reflect(result, model.reflection);
  return result;
}

// The drift's direction becomes the first axis.
void take_rotation(const Rest& rest, QueryReplicate& model) {
  const double length = norm(rest.slope);
  if (!(length > 0)) return;
  std::vector<double> direction(model.sign);
  for (std::size_t j = 0; j < direction.size(); ++j) direction[j] *= rest.slope[j] / length;
  std::vector<double> first_axis(direction.size());
  first_axis.front() = 1;
  model.reflection = householder_between(first_axis, direction);
}

// Row g: the reflection without group g in the rows' own signs; (groups, dim).
Matrix reflections_of(const std::vector<QueryReplicate>& models, std::int64_t dim) {
  Matrix result(std::ssize(models), dim);
  for (std::size_t g = 0; g < models.size(); ++g) {
    const auto& model = models[g];
    for (std::size_t j = 0; j < model.reflection.size(); ++j)
      result(static_cast<std::int64_t>(g), static_cast<std::int64_t>(j)) =
          model.sign[j] * model.reflection[j];
  }
  return result;
}

// Row g: the sum over the rows x of a bucket that are not in group g of x (x . w_g); (groups, dim).
Matrix sums_along(const CentredRows& queries, const GroupedBuckets& grouped, std::size_t bucket,
                  const Matrix& reflections) {
  Matrix result(reflections.rows, reflections.cols);
  const auto& rows = grouped.rows_of(bucket);
  for (std::size_t begin = 0; begin < rows.size(); begin += kBlockRows) {
    const auto count = std::min<std::size_t>(kBlockRows, rows.size() - begin);
    Matrix block(static_cast<std::int64_t>(count), queries.dim());
    for (std::size_t i = 0; i < count; ++i)
      copy_centred(queries, rows[begin + i], rows[begin + i] + 1,
                   block.row(static_cast<std::int64_t>(i)));
    Matrix along = multiply_transposed(reflections, block);  // (groups, rows)
    for (std::size_t i = 0; i < count; ++i)
      along(static_cast<std::int64_t>(grouped.group_of(rows[begin + i])),
            static_cast<std::int64_t>(i)) = 0;
    add_scaled(1, multiply(along, block).data, result.data);
  }
  return result;
}

// Turned coordinates of some rows: their sums and sums of squares, around the mean of all queries.
// A reflected row is x - 2 w (w.x): `along`, the sum of x (w.x), is all that is needed besides.
struct TurnedSums {
  double count = 0;
  std::vector<double> sum;      // (dim)
  std::vector<double> squares;  // (dim)

  TurnedSums(const CellSums& cell, std::span<const double> along, const QueryReplicate& model)
      : count(cell.count), sum(turned(cell.sum, model)), squares(cell.squares) {
    if (model.reflection.empty()) return;
    double own = 0;  // sum of (w.x)^2
    for (std::size_t j = 0; j < along.size(); ++j)
      own += model.sign[j] * model.reflection[j] * along[j];
    for (std::size_t j = 0; j < along.size(); ++j) {
      const double w = model.reflection[j];
      squares[j] += 4 * w * (w * own - model.sign[j] * along[j]);
    }
  }

  // `drift`: the part of the squares that a line over position explains.
  double variance(std::size_t j, double drift) const {
    return std::max(kVarianceFloor, (squares[j] - sum[j] * sum[j] / count - drift) / (count - 1));
  }
};

class ReplicateFitter {
 public:
  ReplicateFitter(const CentredRows& queries, const CentredRows& keys, const TextGroups& texts)
      : queries_(queries), grouped_(queries, texts) {
    KeySums key_sums(keys.source, texts);
    for (std::size_t g = 0; g < static_cast<std::size_t>(texts.size()); ++g) {
      rests_.push_back(rest_without(queries, grouped_, g));
      models_.push_back({key_sums.signs_without(static_cast<std::int64_t>(g)), {}, {}, {}});
      take_rotation(rests_.back(), models_.back());
    }
    const Matrix reflections = reflections_of(models_, queries.dim());
    for (std::size_t b = 0; b < grouped_.buckets().size(); ++b)
      along_.push_back(sums_along(queries, grouped_, b, reflections));
  }

  std::vector<QueryReplicate> fit(std::span<const std::int32_t> buckets) {
    for (std::size_t g = 0; g < models_.size(); ++g) fit_columns(g, buckets);
    return std::move(models_);
  }

 private:
  std::span<const double> along(std::size_t bucket, std::size_t group) const {
    return {along_[bucket].row(static_cast<std::int64_t>(group)),
            static_cast<std::size_t>(queries_.dim())};
  }
  void fit_columns(std::size_t group, std::span<const std::int32_t> buckets);
  void fit_bucket(std::size_t group, std::size_t bucket, std::int64_t column);

  const CentredRows& queries_;
  GroupedBuckets grouped_;
  std::vector<Rest> rests_;             // (groups)
  std::vector<QueryReplicate> models_;  // (groups)
  std::vector<Matrix> along_;           // (buckets): (groups, dim)
};

void ReplicateFitter::fit_columns(std::size_t group, std::span<const std::int32_t> buckets) {
  const auto dim = static_cast<std::size_t>(queries_.dim());
  const auto count = std::max<std::size_t>(1, buckets.size());
  const Rest& rest = rests_[group];
  QueryReplicate& model = models_[group];
  model.columns.mean = model.columns.variance =
      Matrix(static_cast<std::int64_t>(count), queries_.dim());
  model.position.assign(count, kNan);
  if (rest.sums.count < 2) return;
  const auto mean = turned(rest.mean, model);
  const auto slope = turned(rest.slope, model);
  model.columns.drift = slope.front();
  std::vector<double> all_along(dim);
  for (std::size_t b = 0; b < along_.size(); ++b) add_scaled(1, along(b, group), all_along);
  const TurnedSums all(rest.sums, all_along, model);
  const auto residual_variance = [&](std::size_t j) {
    return all.variance(j, slope[j] * slope[j] * rest.position_scatter);
  };
  if (buckets.empty()) {
    model.position.front() = 0;
    for (std::size_t j = 0; j < dim; ++j) {
      model.columns.mean.data[j] = mean[j] - slope[j] * rest.position_mean;
      model.columns.variance.data[j] = residual_variance(j);
    }
    return;
  }
  const double variance = residual_variance(0);
  for (std::size_t c = 0; c < buckets.size(); ++c) {
    const auto column = static_cast<std::int64_t>(c);
    fit_bucket(group, place_of(grouped_.buckets(), buckets[c]), column);
    // The drift on the first coordinate only.
    model.columns.mean(column, 0) =
        mean.front() + slope.front() * (model.position[c] - rest.position_mean);
    model.columns.variance(column, 0) = variance;
  }
}

void ReplicateFitter::fit_bucket(std::size_t group, std::size_t bucket, std::int64_t column) {
  QueryReplicate& model = models_[group];
  const CellSums cell = grouped_.without(bucket, group);
  if (cell.count < 2) return;
  const TurnedSums sums(cell, along(bucket, group), model);
  const auto centre = turned(queries_.mean, model);
  model.position[static_cast<std::size_t>(column)] =
      queries_.position_mean + cell.position / cell.count;
  for (std::size_t j = 1; j < centre.size(); ++j) {
    const auto at = static_cast<std::int64_t>(j);
    model.columns.mean(column, at) = centre[j] + sums.sum[j] / cell.count;
    model.columns.variance(column, at) = sums.variance(j, 0);
  }
}

}  // namespace

std::vector<QueryReplicate> fit_queries_without_groups(const CentredRows& queries,
                                                       const CentredRows& keys,
                                                       const TextGroups& texts,
                                                       std::span<const std::int32_t> buckets) {
  return ReplicateFitter(queries, keys, texts).fit(buckets);
}

}  // namespace qkscope
