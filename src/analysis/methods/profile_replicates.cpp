#include "analysis/methods/profile_replicates.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/methods/kernels/eligible_keys.h"
#include "analysis/methods/kernels/query_replicates.h"
#include "base/core/nan.h"
#include "base/numerics/normal.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// A pair of keys, the points at which it counts, and how many pairs it stands for.
struct SampledPair {
  Pair pair;
  std::int64_t first = 0;
  std::int64_t end = 0;
  double weight = 0;
  int group = 0;  // of its text
};

// The pairs that first count at one point: those of each of `keys` with the keys before it.
struct Stratum {
  std::vector<std::int64_t> keys;
  std::vector<std::int64_t> pairs;  // (keys): that each has
  std::int64_t total = 0;
};

// Few pairs count at the first points: some of every point's own, whatever share of all they are.
constexpr std::int64_t kLeastOfPoint = 8;

class PairSampler {
 public:
  PairSampler(const ProfileSource& source, const EligibleKeys& eligible)
      : source_(source),
        eligible_(eligible),
        strata_(static_cast<std::size_t>(source.side.points.size())) {
    const SortedKeys& keys = source.sorted;
    for (std::int64_t j = 0; j < std::ssize(keys.row); ++j) {
      const auto first = eligible.first(j);
      if (first == source.side.points.size()) continue;
      const auto before = j - earliest(j, first);
      if (before <= 0) continue;
      Stratum& stratum = strata_[static_cast<std::size_t>(first)];
      stratum.keys.push_back(j);
      stratum.pairs.push_back(before);
      stratum.total += before;
      total_ += before;
    }
  }

  // About `size` pairs, or all where there are no more; ascending by their first point.
  std::vector<SampledPair> draw(std::int64_t size, std::uint64_t seed) const {
    std::vector<SampledPair> sample;
    for (std::size_t point = 0; point < strata_.size(); ++point) {
      const auto total = strata_[point].total;
      if (total == 0) continue;
      const auto share = static_cast<std::int64_t>(std::ceil(
          static_cast<double>(size) * static_cast<double>(total) / static_cast<double>(total_)));
      Random random(seed ^ (static_cast<std::uint64_t>(point + 1) << 32));
      draw_at(static_cast<std::int64_t>(point), std::min(total, std::max(share, kLeastOfPoint)),
              random.uniform(), sample);
    }
    return sample;
  }

 private:
  std::int64_t earliest(std::int64_t key, std::int64_t point) const {
    return eligible_.at(source_.sorted.example[static_cast<std::size_t>(key)], point).begin;
  }

  // At even steps through the point's pairs, from a random start: spread over the texts.
  void draw_at(std::int64_t point, std::int64_t count, double start,
               std::vector<SampledPair>& sample) const {
    const Stratum& stratum = strata_[static_cast<std::size_t>(point)];
    const double step = static_cast<double>(stratum.total) / static_cast<double>(count);
    std::size_t key = 0;
    std::int64_t before = 0;  // pairs of earlier keys
    for (std::int64_t n = 0; n < count; ++n) {
      const auto wanted = std::min(
          stratum.total - 1, static_cast<std::int64_t>((static_cast<double>(n) + start) * step));
      while (wanted >= before + stratum.pairs[key]) before += stratum.pairs[key++];
      const auto second = stratum.keys[key];
      const auto first = earliest(second, point) + wanted - before;
      const auto example = source_.sorted.example[static_cast<std::size_t>(second)];
      sample.push_back({{first, second},
                        point,
                        eligible_.end(first),
                        step,
                        source_.texts.of(source_.sorted.text[static_cast<std::size_t>(example)])});
    }
  }

  const ProfileSource& source_;
  const EligibleKeys& eligible_;
  std::vector<Stratum> strata_;  // (points)
  std::int64_t total_ = 0;
};

// Where the queries that are left stand in the profile's bins.
struct BinsWithout {
  std::vector<double> queries;   // (groups, bins)
  std::vector<double> position;  // (groups, bins): mean; that of all queries where none are left

  BinsWithout(const ProfileSource& source, std::size_t groups) {
    const auto bins = source.bins.size();
    for (std::size_t g = 0; g < groups; ++g)
      for (const auto& bin : source.bins) {
        queries.push_back(static_cast<double>(bin.queries));
        position.push_back(bin.position * static_cast<double>(bin.queries));
      }
    const Rows& rows = source.queries.source;
    const auto bin_of = profile_bins_of(source.grid, rows);
    for (std::size_t i = 0; i < bin_of.size(); ++i) {
      const auto found = std::lower_bound(
          source.bins.begin(), source.bins.end(), bin_of[i],
          [](const QueryBin& bin, std::int32_t number) { return bin.bin < number; });
      const auto at = static_cast<std::size_t>(source.texts.of(rows.example(i))) * bins +
                      static_cast<std::size_t>(found - source.bins.begin());
      queries[at] -= 1;
      position[at] -= rows.position[i];
    }
    for (std::size_t at = 0; at < queries.size(); ++at)
      position[at] = queries[at] > 0 ? position[at] / queries[at] : source.bins[at % bins].position;
  }
};

// Sums over groups of texts, and without one of them.
class PointSums {
 public:
  PointSums(std::size_t groups, std::size_t points)
      : groups_(groups), points_(points), sums_(groups * points) {}
  PointSums(std::size_t points, std::span<const double> sums)
      : groups_(sums.size() / points), points_(points), sums_(sums.begin(), sums.end()) {}

  double* of(int group) { return sums_.data() + static_cast<std::size_t>(group) * points_; }
  double without(std::size_t group, std::size_t point) const {
    double sum = 0;
    for (std::size_t g = 0; g < groups_; ++g)
      if (g != group) sum += sums_[g * points_ + point];
    return sum;
  }

 private:
  std::size_t groups_;
  std::size_t points_;
  std::vector<double> sums_;  // (groups, points)
};

// Sums over the sampled pairs, point by point.
class SampleSums {
 public:
  SampleSums(const ProfileSource& source, std::vector<SampledPair> sample)
      : source_(source),
        sample_(std::move(sample)),
        points_(static_cast<std::size_t>(source.side.points.size())),
        column_end_(source.side.points.column_ends()),
        first_column_(source.side.points.column),
        values_(points_),
        differences_(std::ssize(sample_) + 1, source.keys.dim()) {
    for (auto p = points_; p > 1; --p)
      first_column_[p - 2] = std::min(first_column_[p - 2], first_column_[p - 1]);
    const auto dim = differences_.cols;
    const auto row = [&](std::int64_t key) {
      return source.keys.source.vectors.data() +
             dim * source.sorted.row[static_cast<std::size_t>(key)];
    };
    for (std::size_t i = 0; i < sample_.size(); ++i) {
      const float* const first = row(sample_[i].pair.first);
      const float* const second = row(sample_[i].pair.second);
      double* const x = differences_.row(static_cast<std::int64_t>(i));
      for (std::int64_t j = 0; j < dim; ++j) x[j] = static_cast<double>(first[j]) - second[j];
    }
  }

  // How many pairs the sampled ones stand for.
  PointSums weights() const {
    PointSums result(static_cast<std::size_t>(source_.texts.size()), points_);
    for (const auto& pair : sample_)
      for (auto p = pair.first; p < pair.end; ++p) result.of(pair.group)[p] += pair.weight;
    return result;
  }

  // Adds the plasticity of all pairs but those of group `left_out` to `sums`. `shift` (points):
  // from the column's position to the point's.
  void add(const QueryReplicate& model, std::span<const double> shift, int left_out,
           PointSums& sums);

 private:
  const ProfileSource& source_;
  std::vector<SampledPair> sample_;
  std::size_t points_;
  std::vector<std::int32_t> column_end_;    // (points)
  std::vector<std::int32_t> first_column_;  // (points): least column of this and later points
  std::vector<double> values_;              // (points)
  Matrix differences_;                      // (pairs + 1, dim): of the two keys; the last row is 0
};

void SampleSums::add(const QueryReplicate& model, std::span<const double> shift, int left_out,
                     PointSums& sums) {
  // A pair of keys is as good as its difference beside a key at 0.
  KeyTile turned;
  turned.vectors = differences_;
  const auto dim = model.sign.size();
  for (std::int64_t i = 0; i + 1 < turned.vectors.rows; ++i) {
    double* const x = turned.vectors.row(i);
    for (std::size_t j = 0; j < dim; ++j) x[j] *= model.sign[j];
    reflect({x, dim}, model.reflection);
  }
  const auto& points = source_.side.points;
  PairEvaluator evaluator(model.columns, [&](const PairLines& lines) {
    for (std::size_t p = 0; p < lines.pairs.size(); ++p) {
      const auto& pair = sample_[static_cast<std::size_t>(lines.pairs[p].first)];
      const auto at = p * static_cast<std::size_t>(lines.columns);
      plasticity_along({lines.start.data() + at, lines.slope.data() + at,
                        static_cast<std::int32_t>(lines.first_column), points.column.data(),
                        column_end_.data(), shift.data(), pair.first, pair.end},
                       values_.data());
      double* const sum = sums.of(pair.group) + pair.first;
      for (std::int64_t i = 0; i < pair.end - pair.first; ++i)
        sum[i] += pair.weight * values_[static_cast<std::size_t>(i)];
    }
  });
  evaluator.set_keys(turned);
  std::int32_t column = -1;
  for (std::size_t i = 0; i < sample_.size(); ++i) {
    if (sample_[i].group == left_out) continue;
    const auto first = first_column_[static_cast<std::size_t>(sample_[i].first)];
    if (first != column) evaluator.set_columns(first, model.columns.size());
    column = first;
    evaluator.add({static_cast<std::int64_t>(i), turned.vectors.rows - 1});
  }
  evaluator.flush();
}

std::vector<std::size_t> bins_of_points(const ProfileSource& source) {
  std::vector<std::size_t> result;
  const auto& bins = source.side.points.bin;
  for (std::size_t i = 0; i < source.bins.size(); ++i)
    if (result.size() < bins.size() && bins[result.size()] == source.bins[i].bin)
      result.push_back(i);
  return result;
}

// From where each point's column stands without a group of texts to where its queries do.
std::vector<double> shifts_of(const ProfileSource& source, const QueryReplicate& model,
                              std::span<const double> position,
                              std::span<const std::size_t> bin_of_point) {
  std::vector<double> shifts;
  for (std::size_t p = 0; p < bin_of_point.size(); ++p) {
    const auto column = static_cast<std::size_t>(source.side.points.column[p]);
    shifts.push_back(position[bin_of_point[p]] - model.position[column]);
  }
  return shifts;
}

}  // namespace

ProfileReplicates profile_without_groups(const ProfileSource& source,
                                         const PlasticityOptions& options) {
  const auto& points = source.side.points;
  const auto groups = static_cast<std::size_t>(source.texts.size());
  const auto count = static_cast<std::size_t>(points.size());
  const auto bins = source.bins.size();
  const BinsWithout left(source, groups);
  ProfileReplicates result{source.texts.size(), std::vector<double>(groups * bins, kNan),
                           left.queries};
  if (count == 0) return result;
  const auto bin_of_point = bins_of_points(source);
  const EligibleKeys eligible(source.sorted, points, options.sliding_window);
  SampleSums sample(source,
                    PairSampler(source, eligible).draw(options.replicate_pairs, options.seed));
  const PointSums weights = sample.weights();
  PointSums with_all(groups, count);
  sample.add({source.model.sign, source.model.reflection, source.side.columns, {}}, points.shift,
             -1, with_all);
  const PointSums key_sums(count, source.pairs.sum);
  const PointSums key_weights(count, source.pairs.weight);
  const auto models = fit_queries_without_groups(source.queries, source.keys, source.texts,
                                                 source.side.columns.bucket);
  for (std::size_t g = 0; g < groups; ++g) {
    const auto shifts = shifts_of(source, models[g],
                                  std::span(left.position).subspan(g * bins, bins), bin_of_point);
    PointSums with_rest(groups, count);
    sample.add(models[g], shifts, static_cast<int>(g), with_rest);
    for (std::size_t p = 0; p < count; ++p) {
      const auto at = g * bins + bin_of_point[p];
      const double pairs = key_weights.without(g, p);
      if (pairs == 0 || left.queries[at] == 0 || std::isnan(shifts[p])) continue;
      const double weight = weights.without(g, p);
      const double moved =
          weight > 0 ? (with_rest.without(g, p) - with_all.without(g, p)) / weight : 0;
      result.value[at] = key_sums.without(g, p) / pairs + moved;
    }
  }
  return result;
}

}  // namespace qkscope
