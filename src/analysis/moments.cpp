#include "analysis/moments.h"

#include <algorithm>

#include "core/error.h"
#include "numerics/products.h"

namespace qkscope {
namespace {

void centre_positions(CentredRows& rows) {
  double sum = 0;
  for (const auto t : rows.source.position) sum += t;
  rows.position_mean = sum / static_cast<double>(rows.size());
  for (const auto t : rows.source.position) {
    const double d = t - rows.position_mean;
    rows.position_scatter += d * d;
  }
}

std::vector<double> mean_of(const Rows& rows) {
  const auto dim = static_cast<std::size_t>(rows.dim);
  std::vector<double> mean(dim);
  add_rows(rows.vectors.data(), rows.size(), mean);
  for (double& m : mean) m /= static_cast<double>(rows.size());
  return mean;
}

}  // namespace

Rows rows_of(const HeadRows& rows) {
  return {rows.head_dim,   rows.vectors, rows.position,
          rows.example_id, rows.bucket,  rows.example_key};
}

CentredRows centre(const Rows& source) {
  const auto dim = static_cast<std::size_t>(source.dim);
  const auto count = source.size();
  QKSCOPE_ASSERT(count > 0 && source.vectors.size() == dim * source.position.size());
  CentredRows rows{source, mean_of(source),         Matrix(source.dim, source.dim), 0,
                   0,      std::vector<double>(dim)};
  centre_positions(rows);
  constexpr std::int64_t kBlock = 256;  // rows that stay in the second cache
  std::vector<double> block(static_cast<std::size_t>(kBlock) * dim);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto end = std::min(begin + kBlock, count);
    copy_centred(rows, begin, end, block.data());
    add_gram(block.data(), end - begin, rows.scatter);
    double time[kBlock];
    for (std::int64_t i = begin; i < end; ++i)
      time[i - begin] = source.position[static_cast<std::size_t>(i)] - rows.position_mean;
    add_weighted_rows(block.data(), {time, static_cast<std::size_t>(end - begin)},
                      rows.cross_scatter);
  }
  fill_lower_triangle(rows.scatter);
  return rows;
}

void copy_centred(const CentredRows& rows, std::int64_t begin, std::int64_t end, double* out) {
  const auto dim = static_cast<std::size_t>(rows.dim());
  centre_rows(rows.source.vectors.data() + static_cast<std::size_t>(begin) * dim, end - begin,
              rows.mean, out);
}

double CentredProjection::operator()(std::int64_t i) const {
  const auto dim = static_cast<std::size_t>(rows_.dim());
  return dot(rows_.source.vectors.subspan(static_cast<std::size_t>(i) * dim, dim), direction_) -
         of_mean_;
}

PooledMoments pool(const CentredRows& queries, const CentredRows& keys) {
  QKSCOPE_ASSERT(queries.dim() == keys.dim());
  const auto dim = static_cast<std::size_t>(queries.dim());
  const auto nq = static_cast<double>(queries.size());
  const auto nk = static_cast<double>(keys.size());
  const double between = nq * nk / (nq + nk);  // weight of the distance between the two means
  const double apart = queries.position_mean - keys.position_mean;
  PooledMoments pooled;
  pooled.count = queries.size() + keys.size();
  pooled.position_mean = (nq * queries.position_mean + nk * keys.position_mean) / (nq + nk);
  pooled.position_scatter =
      queries.position_scatter + keys.position_scatter + between * apart * apart;
  pooled.scatter = queries.scatter;
  for (std::size_t j = 0; j < dim; ++j) {
    pooled.mean.push_back((nq * queries.mean[j] + nk * keys.mean[j]) / (nq + nk));
    pooled.delta.push_back(queries.mean[j] - keys.mean[j]);
    pooled.cross_scatter.push_back(queries.cross_scatter[j] + keys.cross_scatter[j] +
                                   between * pooled.delta[j] * apart);
  }
  for (std::size_t i = 0; i < dim; ++i)
    for (std::size_t j = 0; j < dim; ++j)
      pooled.scatter.data[i * dim + j] +=
          keys.scatter.data[i * dim + j] + between * pooled.delta[i] * pooled.delta[j];
  return pooled;
}

Matrix project_rows(const CentredRows& rows, const PooledMoments& pooled,
                    const Matrix& directions) {
  Matrix projected(directions.rows, rows.size());
  constexpr std::int64_t kBlock = 256;
  for (std::int64_t begin = 0; begin < rows.size(); begin += kBlock) {
    Matrix block(std::min(kBlock, rows.size() - begin), rows.dim());
    copy_centred(rows, begin, begin + block.rows, block.data.data());
    const Matrix part = multiply_transposed(directions, block);
    for (std::int64_t i = 0; i < part.rows; ++i)
      std::copy_n(part.row(i), part.cols, projected.row(i) + begin);
  }
  for (std::int64_t i = 0; i < directions.rows; ++i) {
    double shift = 0;
    for (std::int64_t j = 0; j < directions.cols; ++j) {
      const auto at = static_cast<std::size_t>(j);
      shift += directions(i, j) * (rows.mean[at] - pooled.mean[at]);
    }
    double* const line = projected.row(i);
    for (std::int64_t j = 0; j < projected.cols; ++j) line[j] += shift;
  }
  return projected;
}

}  // namespace qkscope
