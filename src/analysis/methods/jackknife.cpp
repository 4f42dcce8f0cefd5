#include <cmath>
#include <numeric>

#include "analysis/methods/moments.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

// Frees direction vectors: jackknife replicates only need the scalars derived from them.
void clear_direction_vectors(HeadReport& report) {
  if (report.pca) report.pca->components.front().direction = {};
  if (!report.rotation) return;
  report.rotation->a = {};
  report.rotation->b = {};
}

// Accuracy of the discriminant fitted to all texts, measured on all rows outside `group`.
double accuracy_without_group(const PcaResult& all, std::size_t group) {
  if (group >= all.qk_rows.size()) return kNan;
  const auto rows = std::accumulate(all.qk_rows.begin(), all.qk_rows.end(), -all.qk_rows[group]);
  const auto right =
      std::accumulate(all.qk_right.begin(), all.qk_right.end(), -all.qk_right[group]);
  return rows > 0 ? static_cast<double>(right) / static_cast<double>(rows) : kNan;
}

// Projection matrix (dim, dim) onto the planes in which the rows of all texts rotate with position.
Matrix active_plane_projection(const HeadReport& head) {
  if (!head.rotation || head.rotation->a.empty()) return {};
  const auto dim = std::ssize(head.rotation->a);
  const auto& axes = head.rotation->active_axes;
  Matrix sum(dim, dim);
  add_gram(axes.data(), std::ssize(axes) / dim, sum);
  mirror_upper_triangle(sum);
  return sum;
}

// Variance in the active planes (axes a, projection P, scatter S): sum of a^T S a = sum P_ij S_ij.
void set_active_variance_without_group(const RotationResult& all, const Matrix& projection,
                                       const PooledMoments& pooled, RotationResult& result) {
  if (std::isnan(all.active_variance) || result.b.empty()) return;
  const double active = dot(projection.data, pooled.scatter.data);
  const double total = trace(pooled.scatter);
  result.active_variance_total = active / total;
  result.active_variance = active / (total * (1 - result.plane_var_fraction));
}

// Returns plasticity means with one group of texts left out; all other fields are NaN or empty.
PlasticityResult plasticity_without_group(const PlasticityResult& all, int group) {
  PlasticityResult result;
  PlasticityMeans free;
  if (!all.profile_without.free.empty())
    free = plasticity_means_without_group(all, PlasticityKind::free, group);
  set_plasticity_means(plasticity_means_without_group(all, PlasticityKind::gaussian, group), free,
                       result);
  return result;
}

// Returns those geometry columns that have replicates, with one group of texts left out.
GeometryResult geometry_without_group(const GeometryResult& all, std::size_t group) {
  GeometryResult result;
  for (const auto& [column, value] : all.columns)
    if (group < value.without.size()) result.set(column, value.without[group]);
  return result;
}

}  // namespace

double jackknife_error(std::span<const double> without) {
  const auto groups = static_cast<double>(without.size());
  if (without.size() < 2) return kNan;
  double centre = 0;
  for (const double number : without) centre += number / groups;
  double squares = 0;
  for (const double number : without) squares += (number - centre) * (number - centre);
  return std::sqrt(squares * (groups - 1) / groups);
}

std::vector<Moments> leave_one_group_out_moments(const GroupedRows& rows) {
  return to_vector(rows.groups, [&](const RowGroupSums& group) {
    return moments_without_group(rows.rows, group);
  });
}

std::vector<HeadReport> jackknife_replicates(const HeadReport& head,
                                             std::span<const Moments> queries,
                                             std::span<const Moments> keys,
                                             const AnalyzeOptions& options) {
  std::vector<HeadReport> result;
  const Matrix projection = active_plane_projection(head);
  for (std::size_t group = 0; group < queries.size(); ++group) {
    const Moments& q = queries[group];
    const Moments& k = keys[group];
    HeadReport report;
    report.query = head.query;
    report.rope = head.rope;
    report.window = head.window;
    report.dim = head.dim;
    report.n_q = q.count;
    report.n_k = k.count;
    if (q.count > 1 && k.count > 1) {
      const PooledMoments pooled = pool_moments(q, k);
      if (head.pca && !head.pca->components.empty()) {
        report.pca = refine_first_component(q, k, pooled, head.pca->components.front().direction,
                                            options.pca_options);
        report.pca->qk_accuracy = accuracy_without_group(*head.pca, group);
        if (group < head.pca->r_q_axis_without.size()) {
          report.pca->r_q_axis = head.pca->r_q_axis_without[group];
          report.pca->r_k_axis = head.pca->r_k_axis_without[group];
        }
      }
      if (head.rotation) {
        report.rotation =
            find_drift_and_separation(q, k, pooled, options.rotation_options, head.rotation->b);
        set_active_variance_without_group(*head.rotation, projection, pooled, *report.rotation);
      }
      clear_direction_vectors(report);
    }
    if (head.plasticity && head.plasticity->profile_without.groups > 0)
      report.plasticity = plasticity_without_group(*head.plasticity, static_cast<int>(group));
    if (head.geometry) report.geometry = geometry_without_group(*head.geometry, group);
    result.push_back(std::move(report));
  }
  return result;
}

}  // namespace qkscope
