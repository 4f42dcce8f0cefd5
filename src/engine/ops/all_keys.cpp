#include "engine/ops/all_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr double kLeastKept = 1e-30;  // keeps -ln(kept mass) finite
static_assert(keys::kBins == kMassBins);

std::int64_t bit_width(std::int64_t distance) {
  return std::bit_width(static_cast<std::uint64_t>(distance));
}

}  // namespace

void AllKeysColumns::add(QueryTile& queries, std::int64_t begin, std::int64_t end, double* values) {
  QKSCOPE_ASSERT(in_.sequence.length < WeightHistogram::kMostKeys);
  queries_ = {begin, end};
  bins_.resize(as_index((end - begin + kRows - 1) / kRows * kRows));
  for (auto& bins : bins_) bins.clear();
  divergences_.assign(as_index(end - begin) * keys_.replaced.size(), {});
  replaced_scores_.resize(keys_.replaced.size());
  for (auto first = in_.first_key(begin) / kKeys * kKeys; first < end; first += kKeys) {
    const Range block{first, std::min(end, first + kKeys)};
    const auto count = block.end - block.begin;
    queries.multiply(in_.key(first), in_.key_stride(), count, scores_);
    for (std::size_t r = 0; r < keys_.replaced.size(); ++r)
      queries.multiply(keys_.replaced[r].data() + first * in_.d(), in_.d(), count,
                       replaced_scores_[r]);
    add_keys(block, values);
  }
  for (auto i = begin; i < end; ++i) finish(i, values + (i - begin) * layout_.columns());
}

void AllKeysColumns::add_keys(Range block, double* values) {
  std::fill_n(block_sums_, kKeys, 0);
  for (auto query = queries_.begin; query < queries_.end; query += kRows) {
    const auto rows = std::min(kRows, queries_.end - query);
    const auto last =
        std::min(block.end, query + rows);  // end of the keys visible to the last of these queries
    if (last <= block.begin) continue;
    const auto width = keys::padded(last - block.begin);
    for (std::int64_t slot = 0; slot < kRows; ++slot) {
      std::fill_n(p_[slot], width, 0.0f);
      std::fill_n(bin_[slot], width, WeightHistogram::kPaddingBin);
      if (slot < rows)
        add_row(query + slot, slot, block,
                values + (query + slot - queries_.begin) * layout_.columns());
      keys::add_units(p_[slot], width, units_[slot], block_sums_);
    }
    count(query - queries_.begin, width);
  }
  for (auto j = block.begin; j < block.end; ++j)
    key_sums_[j * in_.heads()] += block_sums_[j - block.begin];
}

void AllKeysColumns::add_row(std::int64_t i, std::int64_t slot, Range block, double* v) {
  const Range seen{std::max(block.begin, in_.first_key(i)), std::min(block.end, i + 1)};
  if (seen.begin >= seen.end) return;
  const auto at = seen.begin - block.begin;
  const auto sums = keys::weigh({scores_.row(i - queries_.begin) + at, seen.end - seen.begin,
                                 static_cast<float>(i - seen.begin)},
                                keys::LogSum(in_.lse(i)), p_[slot] + at, bin_[slot] + at);
  v[layout_.entropy()] += sums.entropy;
  v[layout_.distance_mean()] += sums.distance;
  // Keys whose distances have the same bit width are contiguous.
  for (auto j = seen.begin; j < seen.end;) {
    const auto width = bit_width(i - j);
    const auto nearest = width == 0 ? 0 : std::int64_t{1} << (width - 1);
    const auto end = std::min(seen.end, i - nearest + 1);
    const bool all = end - j == seen.end - seen.begin;
    v[layout_.dist(std::min(width, kDistances - 1))] +=
        all ? sums.mass : keys::short_sum(p_[slot] + j - block.begin, end - j);
    j = end;
  }
  compare_row(i, p_[slot], block, seen);
  keep_row(i, p_[slot], block, seen, v);
}

void AllKeysColumns::compare_row(std::int64_t i, const float* p, Range block, Range seen) {
  const auto at = seen.begin - block.begin;
  for (std::size_t r = 0; r < replaced_scores_.size(); ++r) {
    auto& divergence = divergences_[as_index(i - queries_.begin) * replaced_scores_.size() + r];
    const auto part =
        keys::compare(p + at, scores_.row(i - queries_.begin) + at,
                      replaced_scores_[r].row(i - queries_.begin) + at, seen.end - seen.begin);
    const double highest =
        divergence.sum > 0 ? std::max<double>(divergence.highest, part.highest) : part.highest;
    divergence.difference += part.difference;
    divergence.sum = divergence.sum * std::exp(divergence.highest - highest) +
                     part.sum * std::exp(part.highest - highest);
    divergence.highest = highest;
  }
}

void AllKeysColumns::keep_row(std::int64_t i, const float* p, Range block, Range seen,
                              double* v) const {
  const auto sum = [&](std::int64_t begin, std::int64_t end) -> double {
    begin = std::max(begin, seen.begin);
    end = std::min(end, seen.end);
    return begin < end ? keys::sum(p + begin - block.begin, end - begin) : 0.0f;
  };
  for (std::size_t s = 0; s < request_.kept.size(); ++s) {
    const auto& set = request_.kept[s];
    double& kept = v[layout_.kept(static_cast<std::int64_t>(s))];
    if (set.rule == KeptKeys::Rule::ends) {
      kept += sum(0, set.first) + sum(std::max(set.first, i - set.last + 1), i + 1);
      continue;
    }
    float mass = 0;
    const auto at = seen.begin - block.begin;
    rows::dots({p + at, keys_.kept[s].data() + seen.begin, 0, 1, seen.end - seen.begin}, 1.0f,
               &mass);
    kept += mass;
  }
}

// Interleaving the rows hides the latency of dependent additions to one bin.
void AllKeysColumns::count(std::int64_t query, std::int64_t width) {
  WeightHistogram* const bins = bins_.data() + query;
  for (std::int64_t j = 0; j < width; ++j)
    for (std::int64_t slot = 0; slot < kRows; ++slot)
      bins[slot].add(bin_[slot][j], units_[slot][j]);
}

void AllKeysColumns::finish(std::int64_t i, double* v) const {
  const auto query = as_index(i - queries_.begin);
  const double entropy = v[layout_.entropy()];
  v[layout_.perplexity()] = std::exp(entropy);
  v[layout_.entropy_relative()] = i == 0 ? 0.0 : entropy / std::log(static_cast<double>(i + 1));
  const HistogramBounds binned(bins_[query]);
  for (std::int64_t k = 0; k < kKeyShares; ++k) {
    const auto [low, high] = binned.keys_of_share(kKeyShare[k]);
    v[layout_.keys_low(k)] = low;
    v[layout_.keys_high(k)] = high;
  }
  for (std::int64_t k = 0; k < kTopKeys; ++k) {
    const auto [low, high] = binned.mass_of_top(kTopKey[k]);
    v[layout_.top_low(k)] = low;
    v[layout_.top_high(k)] = high;
  }
  // Normalise by the actual sum of weights: KL is a small difference of large numbers.
  double mass = 0;
  for (std::int64_t width = 0; width < kDistances; ++width) mass += v[layout_.dist(width)];
  for (std::size_t r = 0; r < replaced_scores_.size(); ++r) {
    const auto& other = divergences_[query * replaced_scores_.size() + r];
    v[layout_.kl(static_cast<std::int64_t>(r))] =
        other.difference / mass + other.highest + std::log(other.sum) - in_.lse(i) - std::log(mass);
  }
  for (std::int64_t s = 0; s < std::ssize(request_.kept); ++s)
    v[layout_.kl_evicted(s)] = -std::log(std::max(kLeastKept, v[layout_.kept(s)]));
}

}  // namespace qkscope
