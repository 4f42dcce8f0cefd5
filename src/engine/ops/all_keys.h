// Blocks of attention scores of one head and document, and the all-keys statistics ("group C" in
// settings), which need the scores of each query for all keys.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/ops/attention.h"
#include "engine/ops/gemm.h"
#include "engine/ops/key_kernels.h"
#include "engine/ops/replaced_keys.h"
#include "engine/ops/row_kernels.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {

struct HeadAttentionInput {
  const AttentionInput* input;
  const rows::RunningSoftmax* row_sums;  // softmax sums of position 0; position stride: n_heads
  const std::int32_t* ids;               // token id of position 0
  Sequence sequence;
  std::int64_t head;

  std::int64_t heads() const { return input->q.dim(1); }
  std::int64_t key_head() const { return head / (heads() / input->k.dim(1)); }
  std::int64_t head_width() const { return input->q.dim(2); }
  std::int64_t query_stride() const { return heads() * head_width(); }
  std::int64_t key_stride() const { return input->k.dim(1) * head_width(); }
  const float* query(std::int64_t position) const {
    return input->q.data<float>() + (sequence.begin + position) * query_stride() +
           head * head_width();
  }
  const float* key(std::int64_t position) const {
    return input->k.data<float>() + (sequence.begin + position) * key_stride() +
           key_head() * head_width();
  }
  std::int64_t first_visible_key(std::int64_t position) const {
    return qkscope::first_visible_key(position, input->window, input->chunk);
  }
  double max_logit(std::int64_t position) const { return row_sums[position * heads()].highest; }
  double log_sum_exp(std::int64_t position) const {
    const auto& sums = row_sums[position * heads()];
    return static_cast<double>(sums.highest) + std::log(static_cast<double>(sums.sum));
  }
};

struct ScoreBlock {
  std::vector<float> values;  // (queries, keys)
  std::int64_t keys = 0;

  const float* row(std::int64_t query) const { return values.data() + query * keys; }
};

// A block of consecutive queries, packed for products with keys. Scores are bit-identical to those
// in compute_attention(): queries are scaled first; a score is one chain of fused multiply-adds.
class QueryTile {
 public:
  void load_queries(const HeadAttentionInput& in, std::int64_t begin, std::int64_t count) {
    d_ = in.head_width();
    queries_ = count;
    softcap_ = in.input->softcap;
    packed_.resize(as_index(gemm::round_up(count, gemm::tile_shape().rows) * d_));
    gemm::pack_left_operand({in.query(begin), in.query_stride(), count, d_}, packed_.data());
    rows::scale(packed_.data(), static_cast<std::int64_t>(packed_.size()), in.input->scale);
  }

  // Computes the scores of `count` keys; key j is at keys + j * stride.
  void compute_scores(const float* keys, std::int64_t stride, std::int64_t count,
                      ScoreBlock& scores) {
    scores.keys = count;
    scores.values.resize(as_index(queries_ * count));
    packed_keys_.resize(as_index(gemm::round_up(count, gemm::tile_shape().columns) * d_));
    gemm::pack_right_operand({keys, stride, count, d_}, packed_keys_.data());
    gemm::multiply({packed_.data(), packed_keys_.data(), queries_, count, d_}, false,
                   scores.values.data(), count);
    if (softcap_ > 0.0f) rows::soft_cap(scores.values.data(), std::ssize(scores.values), softcap_);
  }

 private:
  std::int64_t d_ = 0;
  std::int64_t queries_ = 0;
  float softcap_ = 0.0f;
  std::vector<float> packed_;
  std::vector<float> packed_keys_;
};

// Histogram of the attention weights of one query: count and mass of keys in half-octave bins.
// Each bin is one integer: mass in units of 2^-40 in the low bits, key count in the high bits.
struct AttentionWeightHistogram {
  static constexpr std::int32_t kPaddingBin = keys::kBins;  // bin for padding
  static constexpr std::int64_t kMostKeys = std::int64_t{1} << 21;
  static constexpr int kMassBits = keys::kUnitBits + 2;  // room for a total mass of 1
  static constexpr std::int64_t kOneKey = std::int64_t{1} << kMassBits;

  std::int64_t bins[keys::kBins + 1] = {};
};

// Bounds that a histogram of attention weights gives on the number of keys that hold a given share
// of the attention mass, and on the mass of the keys with the largest weights.
class AttentionMassBounds {
 public:
  struct Interval {
    double low, high;
  };

  explicit AttentionMassBounds(const AttentionWeightHistogram& histogram) {
    constexpr double kUnit = 1.0 / static_cast<double>(std::int64_t{1} << keys::kUnitBits);
    for (std::size_t b = 0; b < keys::kBins; ++b) {
      const auto cell = histogram.bins[b];
      const double count = static_cast<double>(cell >> AttentionWeightHistogram::kMassBits);
      const double mass =
          static_cast<double>(cell & (AttentionWeightHistogram::kOneKey - 1)) * kUnit;
      keys_[b + 1] = keys_[b] + count;
      held_[b + 1] = held_[b] + mass;
    }
  }

  Interval key_count_for_share(double share) const {
    const auto b = first_bin_reaching(held_, share);
    if (b == keys::kBins) return {keys_[b], keys_[b]};
    const double missing = share - held_[b];
    const double most = keys_[b + 1] - keys_[b];
    // Number of keys needed from bin b. Lower bound: no weight exceeds the bin's upper edge. Upper
    // bound: for any n, the mean of the n largest weights is at least the mean of the whole bin.
    const double average = (held_[b + 1] - held_[b]) / most;
    const double high = keys_[b] + std::min(most, std::max(1.0, std::ceil(missing / average)));
    return {std::min(high, keys_[b] + std::max(1.0, std::ceil(missing / upper_edge(b)))), high};
  }

  Interval mass_of_top_keys(std::int64_t top) const {
    const auto b = first_bin_reaching(keys_, static_cast<double>(top));
    if (b == keys::kBins) return {held_[b], held_[b]};
    const double taken = static_cast<double>(top) - keys_[b];
    const double mass = held_[b + 1] - held_[b];
    const double part = mass * taken / (keys_[b + 1] - keys_[b]);
    return {held_[b] + part, held_[b] + std::max(part, std::min(mass, taken * upper_edge(b)))};
  }

 private:
  // Returns the first bin at which the cumulative sums reach a value; kBins if none does.
  static std::size_t first_bin_reaching(const double (&sums)[keys::kBins + 1], double value) {
    std::size_t b = 0;
    while (b < keys::kBins && sums[b + 1] < value) ++b;
    return b;
  }
  static double upper_edge(std::size_t bin) { return std::exp2(-0.5 * static_cast<double>(bin)); }

  double keys_[keys::kBins + 1] = {};  // cumulative key count
  double held_[keys::kBins + 1] = {};  // cumulative mass
};

// Variants of the keys of a key head: quantised keys, and masks of the keys a cache policy keeps.
struct CompressedKeys {
  std::vector<std::vector<float>> replaced;  // (replacements) of (keys, dim)
  std::vector<std::vector<float>> kept;      // a mask (keys) per policy; empty for Rule::ends
};

static_assert(keys::kBins == kMassBins);

// Computes the all-keys attention statistics of the queries of one head, in blocks of keys.
class AllKeysAccumulator {
 public:
  // The referenced arguments must outlive the object. key_sums points to the sum of attention that
  // key 0 receives; the sums of adjacent keys are n_heads elements apart.
  AllKeysAccumulator(const HeadAttentionInput& input, const AttentionRequest& request,
                     const CompressedKeys& keys, std::int64_t* key_sums)
      : input_(input), request_(request), keys_(keys), key_sums_(key_sums) {}

  // Computes the statistics of queries [begin, end), which are packed in `queries`. On entry, the
  // all-keys columns of `values` (queries, columns) must be 0.
  void compute_query_statistics(QueryTile& queries, std::int64_t begin, std::int64_t end,
                                double* values) {
    QKSCOPE_ASSERT(input_.sequence.length < AttentionWeightHistogram::kMostKeys);
    queries_ = {begin, end};
    histograms_.assign(as_index((end - begin + kRows - 1) / kRows * kRows), {});
    divergences_.assign(as_index(end - begin) * keys_.replaced.size(), {});
    replaced_scores_.resize(keys_.replaced.size());
    for (auto key = input_.first_visible_key(begin) / kKeys * kKeys; key < end; key += kKeys) {
      const IndexRange block{key, std::min(end, key + kKeys)};
      const auto count = block.end - block.begin;
      queries.compute_scores(input_.key(key), input_.key_stride(), count, scores_);
      for (std::size_t r = 0; r < keys_.replaced.size(); ++r)
        queries.compute_scores(keys_.replaced[r].data() + key * input_.head_width(),
                               input_.head_width(), count, replaced_scores_[r]);
      add_key_block_statistics(block, values);
    }
    for (auto i = begin; i < end; ++i) finalize_query(i, values + (i - begin) * layout_.columns());
  }

 private:
  static constexpr double kLeastKept = 1e-30;  // keeps -ln(kept mass) finite
  static constexpr std::int64_t kRows = 4;     // queries per histogram loop
  static constexpr std::int64_t kKeys = 256;   // keys per block

  // Running KL divergence of one query's attention from its attention with replaced keys.
  struct RunningKlDivergence {
    double difference = 0;  // sum p (s - s')
    double highest = 0;     // maximum of s'
    double sum = 0;         // sum of exp(s' - highest); 0 before the first key
  };
  struct IndexRange {  // [begin, end)
    std::int64_t begin, end;
  };

  void add_key_block_statistics(IndexRange block, double* values) {
    std::fill_n(block_sums_, kKeys, 0);
    for (auto query = queries_.begin; query < queries_.end; query += kRows) {
      const auto rows = std::min(kRows, queries_.end - query);
      const auto last = std::min(block.end, query + rows);  // end of the last query's visible keys
      if (last <= block.begin) continue;
      const auto width = gemm::round_up(last - block.begin, keys::kPadding);
      for (std::int64_t slot = 0; slot < kRows; ++slot) {
        std::fill_n(p_[slot], width, 0.0f);
        std::fill_n(bin_[slot], width, AttentionWeightHistogram::kPaddingBin);
        if (slot < rows)
          add_query_statistics(query + slot, slot, block,
                               values + (query + slot - queries_.begin) * layout_.columns());
        keys::add_fixed_point_weights(p_[slot], width, units_[slot], block_sums_);
      }
      // Interleaves the histograms of kRows queries, to hide the latency of additions to one bin.
      AttentionWeightHistogram* const histograms = histograms_.data() + query - queries_.begin;
      for (std::int64_t j = 0; j < width; ++j)
        for (std::int64_t slot = 0; slot < kRows; ++slot)
          histograms[slot].bins[bin_[slot][j]] +=
              units_[slot][j] + AttentionWeightHistogram::kOneKey;
    }
    for (auto j = block.begin; j < block.end; ++j)
      key_sums_[j * input_.heads()] += block_sums_[j - block.begin];
  }

  void add_query_statistics(std::int64_t i, std::int64_t slot, IndexRange block, double* v) {
    const IndexRange seen{std::max(block.begin, input_.first_visible_key(i)),
                          std::min(block.end, i + 1)};
    if (seen.begin >= seen.end) return;
    const auto at = seen.begin - block.begin;
    const auto sums = keys::sum_segment_weights(
        {scores_.row(i - queries_.begin) + at, seen.end - seen.begin,
         static_cast<float>(i - seen.begin)},
        keys::HighLowLogSumExp(input_.log_sum_exp(i)), p_[slot] + at, bin_[slot] + at);
    v[layout_.entropy_column()] += sums.entropy;
    v[layout_.distance_mean_column()] += sums.distance;
    // Consecutive keys whose distances have the same bit width are summed as one range.
    for (auto j = seen.begin; j < seen.end;) {
      const auto width =
          static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(i - j)));
      const auto nearest = width == 0 ? 0 : std::int64_t{1} << (width - 1);
      const auto end = std::min(seen.end, i - nearest + 1);
      const bool all = end - j == seen.end - seen.begin;
      v[layout_.distance_band_column(std::min(width, kDistances - 1))] +=
          all ? sums.mass : keys::sum_attention_weights(p_[slot] + j - block.begin, end - j);
      j = end;
    }
    add_kl_divergences(i, p_[slot], block, seen);
    add_kept_key_mass(i, p_[slot], block, seen, v);
  }

  void add_kl_divergences(std::int64_t i, const float* p, IndexRange block, IndexRange seen) {
    const auto at = seen.begin - block.begin;
    for (std::size_t r = 0; r < replaced_scores_.size(); ++r) {
      auto& divergence = divergences_[as_index(i - queries_.begin) * replaced_scores_.size() + r];
      const auto part = keys::compute_kl_divergence_sums(
          p + at, scores_.row(i - queries_.begin) + at,
          replaced_scores_[r].row(i - queries_.begin) + at, seen.end - seen.begin);
      const double highest =
          divergence.sum > 0 ? std::max<double>(divergence.highest, part.highest) : part.highest;
      divergence.difference += part.difference;
      divergence.sum = divergence.sum * std::exp(divergence.highest - highest) +
                       part.sum * std::exp(part.highest - highest);
      divergence.highest = highest;
    }
  }

  void add_kept_key_mass(std::int64_t i, const float* p, IndexRange block, IndexRange seen,
                         double* v) const {
    const auto sum = [&](std::int64_t begin, std::int64_t end) -> double {
      begin = std::max(begin, seen.begin);
      end = std::min(end, seen.end);
      return begin < end ? keys::sum_vectorized(p + begin - block.begin, end - begin) : 0.0f;
    };
    for (std::size_t s = 0; s < request_.kept.size(); ++s) {
      const auto& set = request_.kept[s];
      double& kept = v[layout_.kept_key_mass_column(static_cast<std::int64_t>(s))];
      if (set.rule == KeptKeys::Rule::ends) {
        kept += sum(0, set.first) + sum(std::max(set.first, i - set.last + 1), i + 1);
        continue;
      }
      float mass = 0;
      const auto at = seen.begin - block.begin;
      rows::dot_products({p + at, keys_.kept[s].data() + seen.begin, 0, 1, seen.end - seen.begin},
                         1.0f, &mass);
      kept += mass;
    }
  }

  void finalize_query(std::int64_t i, double* v) const {
    const auto query = as_index(i - queries_.begin);
    const double entropy = v[layout_.entropy_column()];
    v[layout_.perplexity_column()] = std::exp(entropy);
    v[layout_.normalized_entropy_column()] =
        i == 0 ? 0.0 : entropy / std::log(static_cast<double>(i + 1));
    const AttentionMassBounds bounds(histograms_[query]);
    for (std::int64_t k = 0; k < kKeyShares; ++k) {
      const auto [low, high] = bounds.key_count_for_share(kKeyShare[k]);
      v[layout_.key_count_lower_bound_column(k)] = low;
      v[layout_.key_count_upper_bound_column(k)] = high;
    }
    for (std::int64_t k = 0; k < kTopKeys; ++k) {
      const auto [low, high] = bounds.mass_of_top_keys(kTopKey[k]);
      v[layout_.top_mass_lower_bound_column(k)] = low;
      v[layout_.top_mass_upper_bound_column(k)] = high;
    }
    // Normalise by the actual sum of weights: KL is a small difference of large numbers.
    double mass = 0;
    for (std::int64_t width = 0; width < kDistances; ++width)
      mass += v[layout_.distance_band_column(width)];
    for (std::size_t r = 0; r < replaced_scores_.size(); ++r) {
      const auto& other = divergences_[query * replaced_scores_.size() + r];
      v[layout_.kl_replaced_keys_column(static_cast<std::int64_t>(r))] =
          other.difference / mass + other.highest + std::log(other.sum) - input_.log_sum_exp(i) -
          std::log(mass);
    }
    for (std::int64_t s = 0; s < std::ssize(request_.kept); ++s)
      v[layout_.kl_evicted_column(s)] =
          -std::log(std::max(kLeastKept, v[layout_.kept_key_mass_column(s)]));
  }

  const HeadAttentionInput& input_;
  const AttentionRequest& request_;
  const AttentionColumnLayout& layout_ = request_.layout;
  const CompressedKeys& keys_;
  std::int64_t* key_sums_;
  IndexRange queries_ = {0, 0};
  ScoreBlock scores_;
  std::vector<ScoreBlock> replaced_scores_;
  std::vector<AttentionWeightHistogram> histograms_;  // (queries rounded up to kRows)
  std::vector<RunningKlDivergence> divergences_;      // (queries, replacements)
  std::int64_t block_sums_[kKeys] = {};               // fixed-point attention sum of each key
  // Weights, bins and fixed-point weights of kRows queries; padding has weight 0 and kPaddingBin.
  float p_[kRows][kKeys] = {};
  std::int32_t bin_[kRows][kKeys] = {};
  std::int64_t units_[kRows][kKeys] = {};
};

}  // namespace qkscope
