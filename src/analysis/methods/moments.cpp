#include "analysis/methods/moments.h"

#include <algorithm>
#include <numeric>

#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

// Sets the mean vector of the rows and the sum of squares of their positions; other sums stay 0.
CentredRows compute_row_means(const RowsView& source) {
  const auto dim = as_index(source.dim);
  const auto count = static_cast<double>(source.size());
  QKSCOPE_ASSERT(source.size() > 0 && source.vectors.size() == dim * source.position.size());
  CentredRows rows;
  rows.source = source;
  rows.count = source.size();
  rows.mean.resize(dim);
  add_column_sums(source.vectors.data(), source.size(), rows.mean);
  for (double& mean : rows.mean) mean /= count;
  rows.scatter = Matrix(source.dim, source.dim);
  rows.cross_scatter.resize(dim);
  rows.position_mean = std::accumulate(source.position.begin(), source.position.end(), 0.0) / count;
  for (const auto t : source.position)
    rows.position_scatter += (t - rows.position_mean) * (t - rows.position_mean);
  return rows;
}

}  // namespace

RowsView as_rows_view(const HeadRows& rows) {
  return {rows.head_dim,   rows.vectors, rows.position,
          rows.example_id, rows.bucket,  rows.example_key};
}

std::vector<std::size_t> argsort_by_text_and_position(const RowsView& rows) {
  std::vector<std::size_t> order(as_index(rows.size()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) { return std::pair(rows.example(i), rows.position[i]); };
  // Skip the sort if the rows are sorted already, as those of captures usually are.
  if (!std::ranges::is_sorted(order, {}, place)) std::ranges::sort(order, {}, place);
  return order;
}

JackknifeGroups::JackknifeGroups(const RowsView& queries, const RowsView& keys) {
  std::vector<std::int64_t> texts;
  for (const RowsView* rows : {&queries, &keys})
    for (std::size_t i = 0; i < rows->position.size(); ++i) texts.push_back(rows->example(i));
  *this = from_texts(std::move(texts));
}

JackknifeGroups JackknifeGroups::from_texts(std::vector<std::int64_t> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const auto count = texts.size();
  const auto groups = std::min<std::size_t>(kMost, count);
  std::vector<std::int64_t> first;
  // Text i of n is in group floor(i G / n) of G, so group g begins with text ceil(g n / G).
  for (std::size_t g = 0; g < groups; ++g)
    first.push_back(texts[(g * count + groups - 1) / groups]);
  return JackknifeGroups(std::move(first));
}

int JackknifeGroups::group_of(std::int64_t example) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), example);
  return std::max(0, static_cast<int>(after - first_.begin()) - 1);
}

CentredRows make_centred_rows(const RowsView& source) {
  return make_grouped_rows(source, JackknifeGroups(std::vector<std::int64_t>{0})).rows;
}

GroupedRows make_grouped_rows(const RowsView& source, const JackknifeGroups& texts) {
  GroupedRows result{compute_row_means(source), {}};
  CentredRows& rows = result.rows;
  std::vector<std::vector<std::int64_t>> members(as_index(texts.size()));
  for (std::int64_t i = 0; i < rows.count; ++i)
    members[as_index(texts.group_of(source.example(as_index(i))))].push_back(i);
  for (const auto& group : members) {
    result.groups.push_back(sum_row_group(rows, group));
    const RowGroupSums& sums = result.groups.back();
    add_scaled(1, sums.scatter.data, rows.scatter.data);
    add_scaled(1, sums.cross_scatter, rows.cross_scatter);
  }
  return result;
}

RowGroupSums sum_row_group(const CentredRows& rows, std::span<const std::int64_t> members) {
  const auto dim = as_index(rows.dim());
  RowGroupSums sums;
  sums.count = std::ssize(members);
  sums.sum.resize(dim);
  sums.cross_scatter.resize(dim);
  sums.scatter = Matrix(rows.dim(), rows.dim());
  std::vector<double> times;  // position minus the mean position
  for (const auto row : members)
    times.push_back(rows.source.position[as_index(row)] - rows.position_mean);
  const std::vector<double> ones(times.size(), 1.0);
  const WeightedRowSum weighted[] = {{times, sums.cross_scatter}, {ones, sums.sum}};
  add_centred_gram_and_sums(rows.source.vectors.data(), members, rows.mean, sums.scatter, weighted);
  for (const double t : times) {
    sums.position_sum += t;
    sums.position_scatter += t * t;
  }
  mirror_upper_triangle(sums.scatter);
  return sums;
}

QKSCOPE_VECTORIZE_FOR_CPU Moments moments_without_group(const Moments& all,
                                                        const RowGroupSums& group) {
  Moments rest;
  rest.count = all.count - group.count;
  if (rest.count == 0) return rest;
  const auto left = static_cast<double>(rest.count);
  // `moved`: shift of the mean when the group is left out.
  std::vector<double> moved = group.sum;
  for (double& x : moved) x /= -left;
  const double moved_position = -group.position_sum / left;
  rest.mean = all.mean;
  add_scaled(1, moved, rest.mean);
  rest.position_mean = all.position_mean + moved_position;
  rest.position_scatter =
      all.position_scatter - group.position_scatter - left * moved_position * moved_position;
  rest.cross_scatter = all.cross_scatter;
  add_scaled(-1, group.cross_scatter, rest.cross_scatter);
  add_scaled(-left * moved_position, moved, rest.cross_scatter);
  rest.scatter = all.scatter;
  const double* own = group.scatter.data.data();
  double* to = rest.scatter.data.data();
  for (const double first : moved)
    for (const double second : moved) *to++ -= *own++ + left * first * second;
  return rest;
}

void copy_centred_rows(const CentredRows& rows, std::int64_t begin, std::int64_t end, double* out) {
  const auto dim = as_index(rows.dim());
  centre_rows(rows.source.vectors.data() + as_index(begin) * dim, end - begin, rows.mean, out);
}

std::vector<double> project_on_axis(const CentredRows& rows, std::span<const double> direction) {
  std::vector<double> along(as_index(rows.count));
  compute_row_dots(rows.source.vectors.data(), rows.count, direction, along.data());
  const double of_mean = dot(rows.mean, direction);
  for (double& x : along) x -= of_mean;
  return along;
}

std::vector<double> pooled_cross_scatter(const Moments& queries, const Moments& keys) {
  const auto nq = static_cast<double>(queries.count);
  const auto nk = static_cast<double>(keys.count);
  const double between = nq * nk / (nq + nk);
  const double apart = queries.position_mean - keys.position_mean;
  std::vector<double> sums;
  for (std::size_t j = 0; j < queries.mean.size(); ++j)
    sums.push_back(queries.cross_scatter[j] + keys.cross_scatter[j] +
                   between * (queries.mean[j] - keys.mean[j]) * apart);
  return sums;
}

QKSCOPE_VECTORIZE_FOR_CPU PooledMoments pool_moments(const Moments& queries, const Moments& keys) {
  QKSCOPE_ASSERT(queries.dim() == keys.dim());
  const auto dim = as_index(queries.dim());
  const auto nq = static_cast<double>(queries.count);
  const auto nk = static_cast<double>(keys.count);
  const double between = nq * nk / (nq + nk);
  const double apart = queries.position_mean - keys.position_mean;
  PooledMoments pooled;
  pooled.between = between;
  pooled.count = queries.count + keys.count;
  pooled.position_mean = (nq * queries.position_mean + nk * keys.position_mean) / (nq + nk);
  pooled.position_scatter =
      queries.position_scatter + keys.position_scatter + between * apart * apart;
  pooled.scatter = queries.scatter;
  for (std::size_t j = 0; j < dim; ++j) {
    pooled.mean.push_back((nq * queries.mean[j] + nk * keys.mean[j]) / (nq + nk));
    pooled.delta.push_back(queries.mean[j] - keys.mean[j]);
  }
  pooled.cross_scatter = pooled_cross_scatter(queries, keys);
  for (std::size_t i = 0; i < dim; ++i)
    for (std::size_t j = 0; j < dim; ++j)
      pooled.scatter.data[i * dim + j] +=
          keys.scatter.data[i * dim + j] + between * pooled.delta[i] * pooled.delta[j];
  return pooled;
}

Matrix project_rows(const CentredRows& rows, const PooledMoments& pooled,
                    const Matrix& directions) {
  constexpr std::int64_t kRowsTogether = 256;  // rows per block, sized for the L2 cache
  Matrix projected(directions.rows, rows.count);
  for (std::int64_t begin = 0; begin < rows.count; begin += kRowsTogether) {
    Matrix block(std::min(kRowsTogether, rows.count - begin), rows.dim());
    copy_centred_rows(rows, begin, begin + block.rows, block.data.data());
    const Matrix part = multiply_by_transpose(directions, block);
    for (std::int64_t i = 0; i < part.rows; ++i)
      std::copy_n(part.row(i), part.cols, projected.row(i) + begin);
  }
  for (std::int64_t i = 0; i < directions.rows; ++i) {
    double shift = 0;
    for (std::int64_t j = 0; j < directions.cols; ++j) {
      const auto at = as_index(j);
      shift += directions(i, j) * (rows.mean[at] - pooled.mean[at]);
    }
    double* const line = projected.row(i);
    for (std::int64_t j = 0; j < projected.cols; ++j) line[j] += shift;
  }
  return projected;
}

}  // namespace qkscope
