#include "analysis/methods/free_plasticity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "base/core/numbers.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

constexpr std::int64_t kKeysPerText = 16;  // at most; more are drawn at random
// Keys are compared with another key kLanes at a time. Explicit vectors, because GCC 12 does not
// vectorise the comparisons.
constexpr std::int64_t kLanes = 8;
using FourFloats = float __attribute__((vector_size(16)));
using FourCounts = std::int32_t __attribute__((vector_size(16)));
using FourSums = std::uint32_t __attribute__((vector_size(16)));
struct LaneCounts {
  FourCounts low{};   // keys 0 to 3
  FourCounts high{};  // keys 4 to 7

  std::int64_t operator[](std::int64_t i) const { return i < 4 ? low[i] : high[i - 4]; }
};

FourFloats load(const float* from) {
  FourFloats four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

// Returns the sum of k (n - k) over the lanes k.
std::int64_t sum_of_products(const LaneCounts& k, std::int32_t n) {
  constexpr std::int32_t kMost = 92'681;  // two products of at most n^2 / 4 fit into 32 bits
  std::int64_t sum = 0;
  if (n <= kMost) {
    const auto products = reinterpret_cast<FourSums>(k.low * (n - k.low)) +
                          reinterpret_cast<FourSums>(k.high * (n - k.high));
    for (int i = 0; i < 4; ++i) sum += products[i];
  } else {
    for (std::int64_t i = 0; i < kLanes; ++i) sum += k[i] * (n - k[i]);
  }
  return sum;
}

// A text sampled for a bin, and its eligible keys.
struct ChosenText {
  std::int64_t example = 0;
  KeyRange keys;
};

// Queries of one bin, shifted along the local slope to the position of the bin centre. One query
// per column: (dim, queries + padding).
class BinQueries {
 public:
  void take(const ModelFreeSource& source, std::size_t bin);

  std::int64_t size() const { return size_; }
  const FloatMatrix& columns() const { return columns_; }
  std::size_t groups() const { return begin_.size() - 1; }
  // Rank of each query when the queries are sorted by group of texts: ranks [begin(group),
  // begin(group + 1)) belong to the group.
  std::span<const std::int64_t> slots() const { return slot_; }
  std::int64_t begin(std::size_t group) const { return begin_[group]; }
  // Returns the number of queries outside the group.
  std::int64_t others(std::size_t group) const {
    return size_ - (begin_[group + 1] - begin_[group]);
  }

 private:
  std::int64_t size_ = 0;
  FloatMatrix rows_;  // (queries, dim)
  FloatMatrix columns_;
  std::vector<std::int64_t> slot_;   // (queries)
  std::vector<std::int64_t> begin_;  // (groups + 1)
};

void BinQueries::take(const ModelFreeSource& source, std::size_t bin) {
  const SortedQueries& queries = source.queries;
  const auto& rows = queries.rows_of_bin[bin];
  begin_.assign(static_cast<std::size_t>(source.texts.size()) + 1, 0);
  const auto group_of = [&](std::int64_t row) {
    return static_cast<std::size_t>(queries.group[static_cast<std::size_t>(row)]);
  };
  for (const auto row : rows) ++begin_[group_of(row) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  auto next = begin_;
  slot_.clear();
  for (const auto row : rows) slot_.push_back(next[group_of(row)]++);
  const auto dim = queries.vectors.cols;
  size_ = std::ssize(rows);
  columns_.rows = dim;
  columns_.cols = size_ + kNarrowPadding;  // the padding keeps old numbers
  columns_.data.resize(static_cast<std::size_t>(dim * columns_.cols));
  const auto knot = source.model.knots.knot[bin];
  const double fraction = source.model.knots.fraction[bin];
  std::vector<double> slope(source.model.slope.row(knot), source.model.slope.row(knot) + dim);
  if (fraction > 0)
    for (std::size_t j = 0; j < slope.size(); ++j)
      slope[j] += fraction * (source.model.slope.row(knot + 1)[j] - slope[j]);
  const double centre = source.bins[bin].centre();
  if (rows_.rows < size_) rows_ = FloatMatrix(size_, dim);
  for (std::int64_t i = 0; i < size_; ++i) {
    const auto row = rows[static_cast<std::size_t>(i)];
    const double move = centre - queries.position[static_cast<std::size_t>(row)];
    const float* const x = queries.vectors.row(row);
    float* const moved = rows_.row(i);
    for (std::int64_t j = 0; j < dim; ++j) {
      const auto at = static_cast<std::size_t>(j);
      moved[j] = static_cast<float>(x[j] + queries.mean[at] + move * slope[at]);
    }
  }
  for (std::int64_t j = 0; j < dim; ++j)
    for (std::int64_t i = 0; i < size_; ++i) columns_(j, i) = rows_(i, j);
}

// Sums over the sampled texts of one bin, and the leave-one-group-out sums (`..._without`, one per
// group of texts).
struct BinSums {
  double pairs = 0;  // evaluated
  double weight = 0;
  double free = 0;      // weighted
  double gaussian = 0;  // weighted
  std::vector<double> weight_without;
  std::vector<double> free_without;
  std::vector<double> gaussian_without;
};

class FreeProfile {
 public:
  // `eligible`: keys before each bin.
  FreeProfile(const ModelFreeSource& source, const PlasticityOptions& options,
              const EligibleKeys& eligible)
      : source_(source),
        options_(options),
        eligible_(eligible),
        groups_(options.replicates ? source.texts.size() : 0) {}

  // `gaussian`: mean over all pairs of the bin.
  BinSums bin(std::size_t bin, std::int64_t gaussian_point, double gaussian);

 private:
  std::vector<ChosenText> choose(std::int64_t point, Random& random);
  void score(const ChosenText& text, Random& random);
  std::int64_t add_pairs();
  std::int64_t compare(std::int64_t first, std::int64_t second);

  const ModelFreeSource& source_;
  const PlasticityOptions& options_;
  const EligibleKeys& eligible_;
  int groups_;
  BinQueries queries_;
  bool all_keys_ = false;              // whether all keys of the current bin are used
  std::int64_t keys_ = 0;              // number of keys in the current text
  double equal_pairs_ = 0;             // pairs of equal keys in the current text
  std::vector<float> gathered_;        // (keys, dim): the sampled keys of a text
  std::vector<float> scores_;          // (keys, queries), and padding behind the last row
  FloatMatrix by_query_;               // (queries, keys and padding): scores
  std::vector<LaneCounts> counts_;     // (groups): queries that prefer each of kLanes keys
  std::vector<std::int64_t> without_;  // (groups): leave-one-group-out sums of k (n - k)
  std::vector<ChosenText> all_;        // texts with a pair of keys before the current bin
};

std::vector<ChosenText> FreeProfile::choose(std::int64_t point, Random& random) {
  all_.clear();
  std::int64_t keys = 0;  // at most kKeysPerText of every text
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < source_.sorted.examples(); ++e) {
    const KeyRange range = eligible_.at(e, point);
    if (range.pairs() == 0) continue;
    all_.push_back({e, range});
    keys += std::min(kKeysPerText, range.end - range.begin);
    total += range.end - range.begin;
  }
  all_keys_ = total <= options_.free_keys;
  if (keys <= options_.free_keys) return all_;
  // Texts at even steps from a random start: the sample covers all groups of texts evenly.
  const double step = static_cast<double>(keys) / static_cast<double>(options_.free_keys);
  std::vector<ChosenText> chosen;
  for (double at = step * random.uniform(); at < static_cast<double>(all_.size()); at += step)
    chosen.push_back(all_[static_cast<std::size_t>(at)]);
  return chosen;
}

void FreeProfile::score(const ChosenText& text, Random& random) {
  const auto count = text.keys.end - text.keys.begin;
  const auto dim = source_.keys.dim;
  const float* rows = source_.keys.row(text.keys.begin);
  keys_ = count;
  if (count > kKeysPerText && !all_keys_) {
    keys_ = kKeysPerText;
    gathered_.resize(static_cast<std::size_t>(keys_ * dim));
    for (std::int64_t i = 0, kept = 0; kept < keys_; ++i) {
      if (static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(count - i))) >=
          keys_ - kept)
        continue;
      std::copy_n(rows + i * dim, dim, gathered_.begin() + kept++ * dim);
    }
    rows = gathered_.data();
  }
  scores_.resize(static_cast<std::size_t>(keys_ * queries_.size() + kNarrowPadding));
  multiply_narrow(rows, keys_, dim, queries_.columns().data.data(), queries_.columns().cols,
                  queries_.size(), scores_.data());
}

// Compares key `second` with keys [first, first + kLanes): k of the n queries prefer the other key
// to `second`. Returns the sum of k (n - k) over the pairs and adds the leave-one-group-out sums to
// without_. Not inlined: in a larger function the compiler spills registers of the inner loop.
[[gnu::noinline]] std::int64_t FreeProfile::compare(std::int64_t first, std::int64_t second) {
  const auto n = queries_.size();
  const auto stride = by_query_.cols;
  const float* scores = by_query_.row(0) + first;  // of one query
  LaneCounts all;
  for (std::size_t g = 0; g < counts_.size(); ++g) {
    LaneCounts own;
    const auto end = queries_.begin(g + 1);
    for (auto query = queries_.begin(g); query < end; ++query, scores += stride) {
      const float other = scores[second - first];
      own.low -= load(scores) > other;  // a comparison that holds is -1
      own.high -= load(scores + 4) > other;
    }
    counts_[g] = own;
    all.low += own.low;
    all.high += own.high;
  }
  for (std::size_t g = 0; g < without_.size(); ++g)
    without_[g] += sum_of_products({all.low - counts_[g].low, all.high - counts_[g].high},
                                   static_cast<std::int32_t>(queries_.others(g)));
  for (auto key = first; key < std::min(first + kLanes, second); ++key) {
    const float* const x = scores_.data() + key * n;
    if (all[key - first] == 0 && std::equal(x, x + n, scores_.data() + second * n)) ++equal_pairs_;
  }
  return sum_of_products(all, static_cast<std::int32_t>(n));
}

// Returns the sum of k (n - k) over the text's pairs of keys. Pairs of equal keys are counted
// separately in equal_pairs_, because no query prefers either key. Descending order: the score of a
// key becomes -infinity after its pairs with all earlier keys are counted, so that compare() does
// not count any pair twice.
std::int64_t FreeProfile::add_pairs() {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const auto n = queries_.size();
  const auto padded = (keys_ + kLanes - 1) / kLanes * kLanes;
  by_query_.rows = n;
  by_query_.cols = padded;
  by_query_.data.assign(static_cast<std::size_t>(n * padded), kNever);
  const auto slots = queries_.slots();
  const float* scores = scores_.data();
  for (std::int64_t key = 0; key < keys_; ++key, scores += n)
    for (std::int64_t query = 0; query < n; ++query)
      by_query_(slots[static_cast<std::size_t>(query)], key) = scores[query];
  counts_.resize(queries_.groups());
  equal_pairs_ = 0;
  std::int64_t sum = 0;
  for (auto second = keys_ - 1; second > 0; --second) {
    for (std::int64_t first = 0; first < second; first += kLanes) sum += compare(first, second);
    for (std::int64_t query = 0; query < n; ++query) by_query_(query, second) = kNever;
  }
  return sum;
}

BinSums FreeProfile::bin(std::size_t bin, std::int64_t gaussian_point, double gaussian) {
  BinSums sums;
  const auto groups = static_cast<std::size_t>(groups_);
  sums.weight_without.resize(groups);
  sums.free_without.resize(groups);
  sums.gaussian_without.resize(groups);
  queries_.take(source_, bin);
  if (queries_.size() < 2) return sums;
  Random random(options_.seed ^ (static_cast<std::uint64_t>(bin + 1) << 40));
  for (const auto& text : choose(static_cast<std::int64_t>(bin), random)) {
    score(text, random);
    const int group = source_.texts.of(source_.sorted.text[static_cast<std::size_t>(text.example)]);
    without_.assign(groups, 0);
    const auto pairs = keys_ * (keys_ - 1) / 2;
    const auto evaluated = static_cast<double>(pairs);
    const double weight = static_cast<double>(text.keys.pairs());
    const auto products = add_pairs();
    const auto plasticity = [&](std::int64_t sum, std::int64_t count) {
      return (unbiased_plasticity(sum, count) + equal_pairs_) / evaluated;
    };
    const double modelled = gaussian_point < 0 ? 0
                                               : source_.gaussian.texts.mean_of_text(
                                                     text.example, gaussian_point, gaussian);
    sums.pairs += evaluated;
    sums.weight += weight;
    sums.free += weight * plasticity(products, queries_.size());
    sums.gaussian += weight * modelled;
    for (std::size_t g = 0; g < groups; ++g) {
      const auto rest = queries_.others(g);
      if (static_cast<int>(g) == group || rest < 2) continue;
      sums.weight_without[g] += weight;
      sums.free_without[g] += weight * plasticity(without_[g], rest);
      sums.gaussian_without[g] += weight * modelled;
    }
  }
  return sums;
}

// Mean Gaussian plasticity of the pairs whose keys are outside the group, under the model fitted to
// all queries.
double gaussian_without(const PairGroups& pairs, std::size_t points, std::size_t point, int group) {
  double sum = 0;
  double weight = 0;
  for (int g = 0; g < pairs.groups; ++g) {
    if (g == group) continue;
    sum += pairs.sum[static_cast<std::size_t>(g) * points + point];
    weight += pairs.weight[static_cast<std::size_t>(g) * points + point];
  }
  return sum / weight;
}

}  // namespace

void add_model_free_profile(const ModelFreeSource& source, const PlasticityOptions& options,
                            PlasticityResult& result) {
  const auto& modelled = source.model.side.points.bin;
  const auto bins = source.bins.size();
  std::optional<EligibleKeys> at_bins;  // only needed if some bins have no model
  if (modelled.size() < bins) {
    QueryPoints points;
    for (const auto& bin : source.bins) points.add(bin.bin, bin.position, 0, 0);
    at_bins.emplace(source.sorted, points, options.sliding_window);
  }
  FreeProfile profile(source, options, at_bins ? *at_bins : source.eligible);
  auto& replicates = result.profile_without;
  replicates.free.assign(replicates.value.size(), kNan);
  std::size_t next = 0;  // point of the Gaussian profile
  for (std::size_t b = 0; b < bins; ++b) {
    ProfilePoint& point = result.profile[b];
    const bool has_model = next < modelled.size() && modelled[next] == source.bins[b].bin;
    const auto at = has_model ? next++ : 0;
    const BinSums sums = profile.bin(b, has_model ? static_cast<std::int64_t>(at) : -1,
                                     has_model ? point.mean.ap : 0);
    if (sums.weight == 0) continue;
    point.free_pairs = static_cast<std::int64_t>(sums.pairs);
    point.ap_free = (has_model ? point.mean.ap : 0) + (sums.free - sums.gaussian) / sums.weight;
    for (int g = 0; g < replicates.groups; ++g) {
      const auto group = static_cast<std::size_t>(g);
      const double left = replicates.queries[group * bins + b];
      if (left < 2 || sums.weight_without[group] == 0) continue;
      replicates.free[group * bins + b] =
          (has_model ? gaussian_without(source.gaussian.groups, modelled.size(), at, g) : 0) +
          (sums.free_without[group] - sums.gaussian_without[group]) / sums.weight_without[group];
    }
  }
}

}  // namespace qkscope
