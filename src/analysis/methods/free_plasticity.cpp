#include "analysis/methods/free_plasticity.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/core/numbers.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

constexpr std::int64_t kKeysPerText = 16;  // at most; more are drawn at random
constexpr std::int64_t kWord = 64;         // queries per word of bits

// A text sampled for a bin, and its eligible keys.
struct ChosenText {
  std::int64_t example = 0;
  KeyRange keys;
};

// Queries of one bin, shifted along the local slope to the position of the bin centre. One query
// per column: (dim, queries + padding).
class BinQueries {
 public:
  void take(const ModelFreeProfileInput& source, std::size_t bin);

  std::int64_t size() const { return size_; }
  const FloatMatrix& columns() const { return columns_; }
  std::size_t words() const { return static_cast<std::size_t>((size_ + kWord - 1) / kWord); }
  // Bit masks (groups, words): bit i is set if query i belongs to the group.
  const std::uint64_t* masks() const { return masks_.data(); }
  // Returns the number of queries outside the group.
  std::int64_t others(std::size_t group) const { return others_[group]; }

 private:
  std::int64_t size_ = 0;
  FloatMatrix columns_;
  std::vector<std::uint64_t> masks_;
  std::vector<std::int64_t> others_;  // (groups)
};

void BinQueries::take(const ModelFreeProfileInput& source, std::size_t bin) {
  const SortedQueries& queries = source.queries;
  const auto& rows = queries.rows_of_bin[bin];
  const auto dim = queries.vectors.cols;
  size_ = std::ssize(rows);
  columns_.rows = dim;
  columns_.cols = size_ + kNarrowPadding;  // the padding keeps old numbers
  columns_.data.resize(static_cast<std::size_t>(dim * columns_.cols));
  others_.assign(static_cast<std::size_t>(source.texts.size()), size_);
  masks_.assign(others_.size() * words(), 0);
  const auto knot = source.model.knots.knot[bin];
  const double fraction = source.model.knots.fraction[bin];
  std::vector<double> slope(source.model.slope.row(knot), source.model.slope.row(knot) + dim);
  if (fraction > 0)
    for (std::size_t j = 0; j < slope.size(); ++j)
      slope[j] += fraction * (source.model.slope.row(knot + 1)[j] - slope[j]);
  const double centre = source.bins[bin].centre();
  for (std::int64_t i = 0; i < size_; ++i) {
    const auto row = rows[static_cast<std::size_t>(i)];
    const double move = centre - queries.position[static_cast<std::size_t>(row)];
    const float* const x = queries.vectors.row(row);
    for (std::int64_t j = 0; j < dim; ++j) {
      const auto at = static_cast<std::size_t>(j);
      columns_(j, i) = static_cast<float>(x[j] + queries.mean[at] + move * slope[at]);
    }
    const auto group = static_cast<std::size_t>(queries.group[static_cast<std::size_t>(row)]);
    masks_[group * words() + static_cast<std::size_t>(i / kWord)] |= std::uint64_t{1}
                                                                     << (i % kWord);
    others_[group] -= 1;
  }
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
  FreeProfile(const ModelFreeProfileInput& source, const PlasticityOptions& options,
              const EligibleKeys& eligible)
      : source_(source),
        options_(options),
        eligible_(eligible),
        groups_(options.replicates ? source.texts.size() : 0) {}

  // `gaussian`: mean Gaussian plasticity of the bin, for texts without evaluated pairs.
  BinSums bin(std::size_t bin, std::int64_t gaussian_point, double gaussian);

 private:
  std::vector<ChosenText> choose(std::int64_t point, Random& random);
  void score(const ChosenText& text, Random& random);
  std::int64_t add_pairs();
  void take_bits(std::int64_t first, std::int64_t second);

  const ModelFreeProfileInput& source_;
  const PlasticityOptions& options_;
  const EligibleKeys& eligible_;
  int groups_;
  BinQueries queries_;
  bool all_keys_ = false;              // whether all keys of the current bin are used
  std::int64_t keys_ = 0;              // number of keys in the current text
  double equal_pairs_ = 0;             // pairs of equal keys in the current text
  std::vector<float> gathered_;        // (keys, dim): the sampled keys of a text
  std::vector<float> scores_;          // (keys, queries), and padding behind the last row
  std::vector<std::uint64_t> bits_;    // (words): queries that prefer the first key
  std::vector<std::int64_t> without_;  // (groups): leave-one-group-out sums of k (n - k)
  std::vector<ChosenText> all_;        // texts with a pair of keys before the current bin
};

std::vector<ChosenText> FreeProfile::choose(std::int64_t point, Random& random) {
  all_.clear();
  std::int64_t keys = 0;  // at most kKeysPerText of every text
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < source_.sorted.example_count(); ++e) {
    const KeyRange range = eligible_.at(e, point);
    if (range.pair_count() == 0) continue;
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
  scores_.resize(
      static_cast<std::size_t>(keys_ * queries_.size() + std::max(kNarrowPadding, kWord)));
  multiply_narrow(rows, keys_, dim, queries_.columns().data.data(), queries_.columns().cols,
                  queries_.size(), scores_.data());
}

void FreeProfile::take_bits(std::int64_t first, std::int64_t second) {
  const float* const x = scores_.data() + first * queries_.size();
  const float* const y = scores_.data() + second * queries_.size();
  for (std::size_t word = 0; word < bits_.size(); ++word) {
    const auto begin = static_cast<std::int64_t>(word) * kWord;
    std::uint8_t prefers[kWord];  // behind the last query: arbitrary
    for (std::int64_t i = 0; i < kWord; ++i) prefers[i] = x[begin + i] > y[begin + i] ? 1 : 0;
    // Each product gathers eight bytes of 0 or 1 into the bits of its highest byte.
    std::uint64_t bits = 0;
    for (int eight = 0; eight < 8; ++eight) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, prefers + 8 * eight, 8);
      bits |= (bytes * 0x0102040810204080U >> 56) << (8 * eight);
    }
    bits_[word] = bits;
  }
  bits_.back() &= ~std::uint64_t{0} >> (std::ssize(bits_) * kWord - queries_.size());
}

// Returns the sum of k (n - k) over the text's pairs, where k of the n queries prefer the first
// key, and adds the leave-one-group-out sums to without_. Pairs of equal keys are counted
// separately in equal_pairs_, because no query prefers either key.
std::int64_t FreeProfile::add_pairs() {
  const auto n = queries_.size();
  std::int64_t sum = 0;
  equal_pairs_ = 0;
  for (std::int64_t j = 0; j < keys_; ++j)
    for (std::int64_t i = 0; i < j; ++i) {
      take_bits(i, j);
      std::int64_t prefer = 0;
      for (const auto bits : bits_) prefer += std::popcount(bits);
      const float* const x = scores_.data() + i * n;
      const float* const y = scores_.data() + j * n;
      if (prefer == 0 && std::equal(x, x + n, y)) {
        ++equal_pairs_;
        continue;
      }
      sum += prefer * (n - prefer);
      const std::uint64_t* mask = queries_.masks();
      for (std::size_t g = 0; g < without_.size(); ++g) {
        auto rest = prefer;  // without the group's queries
        for (const auto bits : bits_) rest -= std::popcount(bits & *mask++);
        without_[g] += rest * (queries_.others(g) - rest);
      }
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
  bits_.assign(queries_.words(), 0);
  Random random(options_.seed ^ (static_cast<std::uint64_t>(bin + 1) << 40));
  for (const auto& text : choose(static_cast<std::int64_t>(bin), random)) {
    score(text, random);
    const int group =
        source_.texts.group_of(source_.sorted.text[static_cast<std::size_t>(text.example)]);
    without_.assign(groups, 0);
    const auto pairs = keys_ * (keys_ - 1) / 2;
    const auto evaluated = static_cast<double>(pairs);
    const double weight = static_cast<double>(text.keys.pair_count());
    const auto products = add_pairs();
    const auto plasticity = [&](std::int64_t sum, std::int64_t count) {
      return (unbiased_plasticity(sum, count) + equal_pairs_) / evaluated;
    };
    const double modelled = gaussian_point < 0 ? 0
                                               : source_.gaussian.texts.mean_of_example(
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
double gaussian_without(const GroupPairSums& pairs, std::size_t points, std::size_t point,
                        int group) {
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

void add_model_free_profile(const ModelFreeProfileInput& source, const PlasticityOptions& options,
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
