#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "analysis/methods/plasticity.h"
#include "base/core/cpu_target.h"
#include "base/core/numbers.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

constexpr std::int64_t kKeysPerText = 16;  // keys sampled from a text that has more
constexpr std::int64_t kLanes = 4;         // groups of texts per SIMD vector

// SIMD vectors with one lane per group of texts.
using LaneScores = float __attribute__((vector_size(kLanes * sizeof(float))));
using LaneCounts = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

// A text sampled for a bin of query positions, with its earlier keys inside the head's window.
struct SampledText {
  std::int64_t example = 0;
  KeyRange keys;
};

// Queries of one bin, shifted along the local slope to the position of the bin centre. One query
// per column, in blocks of kLanes groups of texts: column c of a block belongs to lane c % kLanes.
// Groups with similar numbers of queries share a block. Columns without a query are 0, so that all
// keys have the same score there.
class BinQueries {
 public:
  void load_bin(const GaussianPlasticityProfile& source, std::size_t bin) {
    const SortedQueries& queries = source.queries;
    const auto& rows = queries.rows_of_bin[bin];
    const auto group_of_row = [&](std::int64_t row) {
      return as_index(queries.group[as_index(row)]);
    };
    size_ = std::ssize(rows);
    std::vector<std::int64_t> count(as_index((source.texts.size() + kLanes - 1) / kLanes * kLanes));
    for (const auto row : rows) ++count[group_of_row(row)];
    group_.resize(count.size());
    std::iota(group_.begin(), group_.end(), std::size_t{0});
    std::ranges::stable_sort(group_, std::ranges::greater{},
                             [&](std::size_t group) { return count[group]; });
    std::vector<std::int64_t> next(count.size());  // (groups): column of the next query
    block_begin_ = {0};
    queries_outside_.clear();
    for (std::size_t lane = 0; lane < lane_count(); ++lane) {
      const auto own = count[group_[lane]];
      if (lane % kLanes == 0) block_begin_.push_back(column_count() + kLanes * own);
      next[group_[lane]] = block_begin_[lane / kLanes] + static_cast<std::int64_t>(lane % kLanes);
      queries_outside_.push_back(static_cast<std::int32_t>(size_ - own));
    }
    const auto dim = as_index(queries.vectors.cols);
    const auto apart = stride();
    columns_.assign(dim * as_index(apart), 0);
    const auto knot = source.model.knots.knot[bin];
    const double fraction = source.model.knots.fraction[bin];
    std::vector<double> slope(source.model.slope.row(knot), source.model.slope.row(knot) + dim);
    if (fraction > 0)
      for (std::size_t j = 0; j < dim; ++j)
        slope[j] += fraction * (source.model.slope.row(knot + 1)[j] - slope[j]);
    std::vector<float> moved(dim);
    for (const auto row : rows) {
      const double move = source.bins[bin].centre() - queries.position[as_index(row)];
      const float* const x = queries.vectors.row(row);
      for (std::size_t j = 0; j < dim; ++j)
        moved[j] = static_cast<float>(x[j] + queries.mean[j] + move * slope[j]);
      float* to = columns_.data() + next[group_of_row(row)];
      next[group_of_row(row)] += kLanes;
      for (std::size_t j = 0; j < dim; ++j, to += apart) *to = moved[j];
    }
  }

  std::int64_t size() const { return size_; }
  std::int64_t column_count() const { return block_begin_.back(); }
  const float* data() const { return columns_.data(); }  // (dim, stride)
  std::int64_t stride() const { return column_count() + kFewColumnsPadding; }
  std::size_t lane_count() const { return group_.size(); }
  // Returns the group of texts that a SIMD lane processes. Lanes beyond the last group are idle.
  std::size_t group_of_lane(std::size_t lane) const { return group_[lane]; }
  std::int32_t queries_outside_group(std::size_t lane) const { return queries_outside_[lane]; }
  // For each group of texts, counts in `preferring` (lanes) the queries with a higher score for the
  // first key than for the second: x > y. x and y (columns): scores of the two keys.
  void count_preferences_by_group(const float* x, const float* y, std::int32_t* preferring) const {
    for (std::size_t block = 0; block + 1 < block_begin_.size(); ++block) {
      LaneCounts count = {};
      for (auto c = block_begin_[block]; c < block_begin_[block + 1]; c += kLanes) {
        LaneScores first, second;
        std::memcpy(&first, x + c, sizeof(LaneScores));
        std::memcpy(&second, y + c, sizeof(LaneScores));
        count -= first > second;  // true is -1
      }
      std::memcpy(preferring, &count, sizeof(LaneCounts));
      preferring += kLanes;
    }
  }

 private:
  std::int64_t size_ = 0;
  std::vector<float> columns_;
  std::vector<std::int64_t> block_begin_;      // (blocks + 1): first column of each block
  std::vector<std::size_t> group_;             // (lanes): descending by number of queries
  std::vector<std::int32_t> queries_outside_;  // (lanes)
};

// Sums over the texts sampled for one bin; `..._without`: sums with one group of texts left out.
struct BinSums {
  double pairs = 0;  // evaluated
  double weight = 0;
  double free = 0;      // weighted
  double gaussian = 0;  // weighted
  std::vector<double> weight_without;
  std::vector<double> free_without;
  std::vector<double> gaussian_without;
};

class ModelFreeProfile {
 public:
  // `eligible`: keys before each bin.
  ModelFreeProfile(const GaussianPlasticityProfile& source, const PlasticityOptions& options,
                   const EligibleKeys& eligible)
      : source_(source),
        options_(options),
        eligible_(eligible),
        groups_(options.replicates ? source.texts.size() : 0) {}

  // `gaussian`: mean Gaussian plasticity of the bin, used for texts without any evaluated pair.
  BinSums sum_bin(std::size_t bin, std::int64_t gaussian_point, double gaussian) {
    BinSums sums;
    const auto groups = as_index(groups_);
    sums.weight_without.resize(groups);
    sums.free_without.resize(groups);
    sums.gaussian_without.resize(groups);
    queries_.load_bin(source_, bin);
    if (queries_.size() < 2) return sums;
    Random random(options_.seed ^ (static_cast<std::uint64_t>(bin + 1) << 40));
    for (const auto& text : sample_texts(static_cast<std::int64_t>(bin), random)) {
      score_keys(text, random);
      const auto own_group =
          as_index(source_.texts.group_of(source_.sorted.text[as_index(text.example)]));
      const auto pairs = keys_ * (keys_ - 1) / 2;
      const auto evaluated = static_cast<double>(pairs);
      const double weight = static_cast<double>(text.keys.key_pair_count());
      const auto products = compare_key_pairs();
      const auto plasticity = [&](std::int64_t sum, std::int64_t count) {
        return (unbiased_plasticity(sum, count) + equal_pairs_) / evaluated;
      };
      const double modelled = gaussian_point < 0 ? 0
                                                 : source_.tables.texts.mean_plasticity(
                                                       text.example, gaussian_point, gaussian);
      sums.pairs += evaluated;
      sums.weight += weight;
      sums.free += weight * plasticity(products, queries_.size());
      sums.gaussian += weight * modelled;
      for (std::size_t lane = 0; lane < queries_.lane_count(); ++lane) {
        const auto group = queries_.group_of_lane(lane);
        const auto rest = queries_.queries_outside_group(lane);
        if (group >= groups || group == own_group || rest < 2) continue;
        sums.weight_without[group] += weight;
        sums.free_without[group] += weight * plasticity(without_[lane], rest);
        sums.gaussian_without[group] += weight * modelled;
      }
    }
    return sums;
  }

 private:
  std::vector<SampledText> sample_texts(std::int64_t point, Random& random) {
    all_.clear();
    std::int64_t keys = 0;  // at most kKeysPerText of every text
    std::int64_t total = 0;
    for (std::int64_t e = 0; e < source_.sorted.example_count(); ++e) {
      const KeyRange range = eligible_.key_range(e, point);
      if (range.key_pair_count() == 0) continue;
      all_.push_back({e, range});
      keys += std::min(kKeysPerText, range.end - range.begin);
      total += range.end - range.begin;
    }
    all_keys_ = total <= options_.free_keys;
    if (keys <= options_.free_keys) return all_;
    // Systematic sampling (fixed step, random start) covers all groups of texts evenly.
    const double step = static_cast<double>(keys) / static_cast<double>(options_.free_keys);
    std::vector<SampledText> chosen;
    for (double at = step * random.uniform(); at < static_cast<double>(all_.size()); at += step)
      chosen.push_back(all_[static_cast<std::size_t>(at)]);
    return chosen;
  }

  void score_keys(const SampledText& text, Random& random) {
    const auto count = text.keys.end - text.keys.begin;
    const auto dim = source_.keys.dim;
    const float* rows = source_.keys.row(text.keys.begin);
    keys_ = count;
    if (count > kKeysPerText && !all_keys_) {
      keys_ = kKeysPerText;
      gathered_.resize(as_index(keys_ * dim));
      for (std::int64_t i = 0, kept = 0; kept < keys_; ++i) {
        if (static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(count - i))) >=
            keys_ - kept)
          continue;
        std::copy_n(rows + i * dim, dim, gathered_.begin() + kept++ * dim);
      }
      rows = gathered_.data();
    }
    scores_.resize(as_index(keys_ * queries_.column_count() + kFewColumnsPadding));
    multiply_few_columns(rows, keys_, dim, queries_.data(), queries_.stride(),
                         queries_.column_count(), scores_.data());
  }

  // Returns the sum of k (n - k) over all pairs of keys of a text, where k of the n queries prefer
  // the first key. Stores the leave-one-group-out sums in without_. Pairs of equal keys are counted
  // in equal_pairs_ instead, because no query prefers either key.
  QKSCOPE_VECTORIZE_FOR_CPU std::int64_t compare_key_pairs() {
    const auto n = queries_.size();
    const auto width = queries_.column_count();
    const auto lanes = queries_.lane_count();
    std::int64_t sum = 0;
    equal_pairs_ = 0;
    preferring_.resize(lanes);
    without_.assign(lanes, 0);
    for (std::int64_t j = 0; j < keys_; ++j)
      for (std::int64_t i = 0; i < j; ++i) {
        const float* const x = scores_.data() + i * width;
        const float* const y = scores_.data() + j * width;
        queries_.count_preferences_by_group(x, y, preferring_.data());
        const auto prefer =
            std::accumulate(preferring_.begin(), preferring_.end(), std::int32_t{0});
        if (prefer == 0 && std::equal(x, x + width, y)) {
          ++equal_pairs_;
          continue;
        }
        sum += prefer * (n - prefer);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          const auto rest = prefer - preferring_[lane];  // without the group's queries
          without_[lane] += std::int64_t{rest} * (queries_.queries_outside_group(lane) - rest);
        }
      }
    return sum;
  }

  const GaussianPlasticityProfile& source_;
  const PlasticityOptions& options_;
  const EligibleKeys& eligible_;
  int groups_;
  BinQueries queries_;
  bool all_keys_ = false;                 // whether all keys of the current bin are used
  std::int64_t keys_ = 0;                 // number of keys in the current text
  double equal_pairs_ = 0;                // pairs of equal keys in the current text
  std::vector<float> gathered_;           // (keys, dim): the sampled keys of a text
  std::vector<float> scores_;             // (keys, columns of queries_), then padding
  std::vector<std::int32_t> preferring_;  // (lanes): queries that prefer the first key
  std::vector<std::int64_t> without_;     // (lanes): leave-one-group-out sums of k (n - k)
  std::vector<SampledText> all_;          // texts with a pair of keys before the current bin
};

}  // namespace

void add_model_free_profile(const GaussianPlasticityProfile& source,
                            const PlasticityOptions& options, PlasticityResult& result) {
  const auto& modelled = source.model.side.points.bin;
  const auto bins = source.bins.size();
  std::optional<EligibleKeys> at_bins;  // set only if some bins have no query model
  if (modelled.size() < bins) {
    QueryEvaluationPoints points;
    for (const auto& bin : source.bins) points.add_point(bin.bin, bin.position, 0, 0);
    at_bins.emplace(source.sorted, points, options.sliding_window);
  }
  ModelFreeProfile profile(source, options, at_bins ? *at_bins : source.eligible);
  auto& replicates = result.profile_without;
  replicates.free.assign(replicates.value.size(), kNan);
  std::size_t next = 0;  // point of the Gaussian profile
  for (std::size_t b = 0; b < bins; ++b) {
    ProfilePoint& point = result.profile[b];
    const bool has_model = next < modelled.size() && modelled[next] == source.bins[b].bin;
    const auto at = has_model ? next++ : 0;
    const BinSums sums = profile.sum_bin(b, has_model ? static_cast<std::int64_t>(at) : -1,
                                         has_model ? point.mean.ap : 0);
    if (sums.weight == 0) continue;
    point.free_pairs = static_cast<std::int64_t>(sums.pairs);
    point.ap_free = (has_model ? point.mean.ap : 0) + (sums.free - sums.gaussian) / sums.weight;
    for (int g = 0; g < replicates.groups; ++g) {
      const auto group = as_index(g);
      const double left = replicates.queries[group * bins + b];
      if (left < 2 || sums.weight_without[group] == 0) continue;
      replicates.free[group * bins + b] =
          (has_model ? source.tables.groups.mean_without_group(group, at) : 0) +
          (sums.free_without[group] - sums.gaussian_without[group]) / sums.weight_without[group];
    }
  }
}

}  // namespace qkscope
