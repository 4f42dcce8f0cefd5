#include "analysis/methods/pca.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

struct ProjectedMoments {
  double variance = 0;    // sum of squares around the mean
  double covariance = 0;  // with position, a sum
};

ProjectedMoments project_moments(const Moments& rows, std::span<const double> direction) {
  return {std::max(0.0, quadratic_form(rows.scatter, direction)),
          dot(rows.cross_scatter, direction)};
}

// Correlates a projection of the rows with their positions. The correlation is NaN if the variance
// along the direction is only rounding error.
Correlation correlate_with_position(const Moments& rows, const ProjectedMoments& projection) {
  const bool varies = projection.variance > 1e-24 * trace(rows.scatter);
  return correlation(projection.covariance, varies ? projection.variance : 0, rows.position_scatter,
                     rows.count);
}

bool has_negative_peak(std::span<const double> direction) {
  return *std::ranges::max_element(direction, {}, [](double x) { return std::fabs(x); }) < 0;
}

bool needs_sign_flip(const PcaComponent& component, const PcaOptions& options) {
  const double r_q = component.q.r;
  const double r_k = component.k.r;
  if (!std::isnan(r_q) && std::fabs(r_q) >= options.weak_correlation) return r_q < 0;
  if (!std::isnan(r_k)) return r_k < 0;
  return has_negative_peak(component.direction);
}

void flip_component_sign(PcaComponent& component) {
  component.q.r = -component.q.r;
  component.k.r = -component.k.r;
  for (double& x : component.direction) x = -x;
}

// Projections of queries and keys onto a direction.
struct QueryKeyProjections {
  ProjectedMoments q;
  ProjectedMoments k;

  QueryKeyProjections(const Moments& queries, const Moments& keys,
                      std::span<const double> direction)
      : q(project_moments(queries, direction)), k(project_moments(keys, direction)) {}
};

PcaComponent make_pca_component(std::vector<double> direction, const QueryKeyProjections& along,
                                const Moments& queries, const Moments& keys,
                                const PcaOptions& options) {
  PcaComponent component;
  component.direction = std::move(direction);
  component.q = correlate_with_position(queries, along.q);
  component.k = correlate_with_position(keys, along.k);
  if (needs_sign_flip(component, options)) flip_component_sign(component);
  return component;
}

// Sets the means, the slopes over position and the Fisher ratio along the first component. `along`:
// projections onto the first component.
void set_first_component_statistics(const Moments& queries, const Moments& keys,
                                    const PooledMoments& pooled, const QueryKeyProjections& along,
                                    PcaResult& result) {
  const auto& direction = result.components.front().direction;
  const auto centre = dot(pooled.mean, direction);
  result.mu_q = dot(queries.mean, direction) - centre;
  result.mu_k = dot(keys.mean, direction) - centre;
  result.slope_q = dot(queries.cross_scatter, direction) / queries.position_scatter;
  result.slope_k = dot(keys.cross_scatter, direction) / keys.position_scatter;
  const double within = 0.5 * (along.q.variance / static_cast<double>(queries.count) +
                               along.k.variance / static_cast<double>(keys.count));
  const double apart = dot(pooled.delta, direction);
  result.fisher = apart * apart / within;
}

// Counts all rows, and the rows on the correct side of the threshold along `line`, by group of
// texts (a single group if `texts` is null). `side` is 1 for queries and -1 for keys.
void count_correct_rows(const CentredRows& rows, std::span<const double> line, double threshold,
                        double side, const JackknifeGroups* texts, PcaResult& result) {
  const auto along = project_on_axis(rows, line);
  const double mean = dot(rows.mean, line);
  for (std::size_t row = 0; row < along.size(); ++row) {
    const auto group = texts ? as_index(texts->group_of(rows.source.example(row))) : std::size_t{0};
    ++result.qk_rows[group];
    result.qk_right[group] += side * (along[row] + mean - threshold) > 0 ? 1 : 0;
  }
}

// Linear discriminant analysis (LDA) of queries and keys on the first two components: shared
// covariance, class sizes as priors. Accuracy is measured on the training rows.
void fit_linear_discriminant(const CentredRows& queries, const CentredRows& keys,
                             const JackknifeGroups* texts, PcaResult& result) {
  if (result.components.size() < 2) return;
  const auto& x = result.components[0].direction;
  const auto& y = result.components[1].direction;
  double xx = 0;
  double xy = 0;
  double yy = 0;
  for (const CentredRows* rows : {&queries, &keys}) {
    const auto along_x = multiply(rows->scatter, x);
    xx += dot(along_x, x);
    xy += dot(along_x, y);
    yy += quadratic_form(rows->scatter, y);
  }
  const double apart_x = dot(queries.mean, x) - dot(keys.mean, x);
  const double apart_y = dot(queries.mean, y) - dot(keys.mean, y);
  const auto nq = static_cast<double>(queries.count);
  const auto nk = static_cast<double>(keys.count);
  const double determinant = (xx * yy - xy * xy) / (nq + nk);
  if (!(determinant > 0)) return;
  const double weight_x = (yy * apart_x - xy * apart_y) / determinant;
  const double weight_y = (xx * apart_y - xy * apart_x) / determinant;
  std::vector<double> line(x.size());
  add_scaled(weight_x, x, line);
  add_scaled(weight_y, y, line);
  const double threshold =
      0.5 * (dot(queries.mean, line) + dot(keys.mean, line)) - std::log(nq / nk);
  const auto groups = texts ? as_index(texts->size()) : std::size_t{1};
  result.qk_rows.assign(groups, 0);
  result.qk_right.assign(groups, 0);
  count_correct_rows(queries, line, threshold, 1, texts, result);
  count_correct_rows(keys, line, threshold, -1, texts, result);
  const auto right =
      std::accumulate(result.qk_right.begin(), result.qk_right.end(), std::int64_t{0});
  result.qk_accuracy = static_cast<double>(right) / (nq + nk);
}

// Sums over the queries or keys of a text group, projected onto the drift axis of the other groups.
struct AxisCorrelationSums {
  double rows = 0;
  double sum = 0;
  double squares = 0;
  double position_sum = 0;
  double position_squares = 0;
  double products = 0;      // projection times position
  double total_square = 0;  // squared length of the rows in all directions

  void add(const AxisCorrelationSums& other, double sign) {
    rows += sign * other.rows;
    sum += sign * other.sum;
    squares += sign * other.squares;
    position_sum += sign * other.position_sum;
    position_squares += sign * other.position_squares;
    products += sign * other.products;
    total_square += sign * other.total_square;
  }

  double pearson_r() const {
    if (rows < 2) return kNan;
    const double variance = squares - sum * sum / rows;
    const bool varies = variance > 1e-24 * total_square;
    return correlation(products - sum * position_sum / rows, varies ? variance : 0,
                       position_squares - position_sum * position_sum / rows,
                       static_cast<std::int64_t>(rows))
        .r;
  }
};

AxisCorrelationSums project_sums(const RowGroupSums& group, std::span<const double> axis) {
  return {static_cast<double>(group.count),
          dot(group.sum, axis),
          quadratic_form(group.scatter, axis),
          group.position_sum,
          group.position_scatter,
          dot(group.cross_scatter, axis),
          trace(group.scatter)};
}

// Unit vector along the covariance of the pooled rows with position. Empty if the covariance is 0
// or if there are no queries or no keys.
std::vector<double> drift_axis(const Moments& queries, const Moments& keys) {
  if (queries.count == 0 || keys.count == 0) return {};
  auto axis = pooled_cross_scatter(queries, keys);
  const double length = norm(axis);
  if (!(length > 0)) return {};
  for (double& x : axis) x /= length;
  return axis;
}

// Returns the correlation over all groups; appends leave-one-group-out correlations to `without`.
double pooled_correlation(std::span<const AxisCorrelationSums> groups,
                          std::vector<double>& without) {
  AxisCorrelationSums all;
  for (const auto& group : groups) all.add(group, 1);
  for (const auto& group : groups) {
    AxisCorrelationSums rest = all;
    rest.add(group, -1);
    without.push_back(rest.pearson_r());
  }
  return all.pearson_r();
}

}  // namespace

PcaResult pca_from_moments(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                           const PcaOptions& options) {
  const auto kept = std::min<std::int64_t>(options.components, pooled.scatter.rows);
  const Eigenpairs eigen = leading_eigenpairs(pooled.scatter, kept);
  PcaResult result;
  // Rounding can leave the smallest eigenvalues of a singular matrix just below zero.
  double total = 0;
  for (const double value : eigen.values) total += std::max(0.0, value);
  for (const double value : eigen.values)
    result.explained_variance.push_back(std::max(0.0, value) / total);
  for (std::int64_t i = 0; i < kept; ++i) {
    std::vector<double> direction(eigen.vectors.row(i), eigen.vectors.row(i + 1));
    const QueryKeyProjections along(queries, keys, direction);
    auto component = make_pca_component(std::move(direction), along, queries, keys, options);
    component.explained_variance = result.explained_variance[as_index(i)];
    result.positional_variance_q += component.explained_variance * component.q.r * component.q.r;
    result.positional_variance_k += component.explained_variance * component.k.r * component.k.r;
    result.components.push_back(std::move(component));
    if (i == 0) set_first_component_statistics(queries, keys, pooled, along, result);
  }
  result.qk_accuracy = kNan;
  return result;
}

PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options,
                       const JackknifeGroups* texts) {
  PcaResult result = pca_from_moments(queries, keys, pooled, options);
  fit_linear_discriminant(queries, keys, texts, result);
  return result;
}

PcaResult refine_first_component(const Moments& queries, const Moments& keys,
                                 const PooledMoments& pooled, std::span<const double> initial,
                                 const PcaOptions& options) {
  auto direction = top_eigenvector(pooled.scatter, initial);
  const QueryKeyProjections along(queries, keys, direction);
  const double apart = dot(pooled.delta, direction);
  auto component = make_pca_component(std::move(direction), along, queries, keys, options);
  component.explained_variance =
      (along.q.variance + along.k.variance + pooled.between * apart * apart) /
      trace(pooled.scatter);
  PcaResult result;
  result.components.push_back(std::move(component));
  set_first_component_statistics(queries, keys, pooled, along, result);
  result.qk_accuracy = result.positional_variance_q = result.positional_variance_k = kNan;
  return result;
}

void correlate_along_drift_axis(const GroupedRows& queries, const GroupedRows& keys,
                                std::span<const Moments> queries_without,
                                std::span<const Moments> keys_without, PcaResult& result) {
  std::vector<AxisCorrelationSums> q(queries_without.size());
  std::vector<AxisCorrelationSums> k(queries_without.size());
  for (std::size_t group = 0; group < q.size(); ++group) {
    const auto axis = drift_axis(queries_without[group], keys_without[group]);
    if (axis.empty()) continue;
    q[group] = project_sums(queries.groups[group], axis);
    k[group] = project_sums(keys.groups[group], axis);
  }
  result.r_q_axis = pooled_correlation(q, result.r_q_axis_without);
  result.r_k_axis = pooled_correlation(k, result.r_k_axis_without);
}

QueryOrKeyPca query_or_key_pca(const Moments& rows, int components) {
  const auto kept = std::min<std::int64_t>(components, rows.scatter.rows);
  const Eigenpairs eigen = leading_eigenpairs(rows.scatter, kept);
  double total = 0;
  for (const double value : eigen.values) total += std::max(0.0, value);
  QueryOrKeyPca result{{}, eigen.values};
  for (std::int64_t i = 0; i < kept; ++i) {
    const std::span<const double> direction(eigen.vectors.row(i), as_index(eigen.vectors.cols));
    SideComponent component;
    component.explained_variance = std::max(0.0, eigen.values[as_index(i)]) / total;
    component.with_position = correlate_with_position(rows, project_moments(rows, direction));
    if (has_negative_peak(direction)) component.with_position.r = -component.with_position.r;
    result.components.push_back(component);
  }
  return result;
}

HeadClass classify(double r_q, double r_k, const TaxonomyOptions& options) {
  if (std::isnan(r_q) || std::isnan(r_k)) return HeadClass::undefined;
  const double k = std::fabs(r_k);
  if (r_q > options.high && k > options.high) return HeadClass::position_dominated;
  if (r_q > options.high && k < options.low) return HeadClass::q_positional;
  if (r_q < options.low && k > options.high) return HeadClass::k_positional;
  if (r_q < options.low && k < options.low) return HeadClass::content_focused;
  return HeadClass::mixed;
}

HeadClass classify_axis(const PcaResult& pca, const TaxonomyOptions& options) {
  return classify(std::fabs(pca.r_q_axis), pca.r_k_axis, options);
}

int position_component(const PcaResult& pca) {
  int best = -1;
  double largest = -1;
  for (std::size_t i = 0; i < pca.components.size(); ++i) {
    const double q = std::fabs(pca.components[i].q.r);
    const double k = std::fabs(pca.components[i].k.r);
    if (std::isnan(q) || std::isnan(k) || std::min(q, k) <= largest) continue;
    largest = std::min(q, k);
    best = static_cast<int>(i);
  }
  return best;
}

std::string to_string(HeadClass head_class) {
  constexpr const char* kNames[] = {"position_dominated", "q_positional", "k_positional",
                                    "content_focused",    "mixed",        ""};
  return translate_exceptions(
      [&]() -> std::string { return kNames[static_cast<std::size_t>(head_class)]; });
}

}  // namespace qkscope
