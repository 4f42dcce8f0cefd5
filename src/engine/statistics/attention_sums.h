// Attention statistics over near keys (group B) and over all keys (group C): column names and
// offsets, sums over rows, buckets and documents, and the means derived from those sums.
// Notation: s_ij is the score of query i and key j, p_ij the attention weight, lse the log-sum-exp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/core/numbers.h"
#include "qkscope/statistics.h"

namespace qkscope {

// A random sample of the queries of a document and head makes all-keys statistics cheaper. Kernels
// process blocks of consecutive positions, so blocks are sampled: round(fraction * B) of the B
// blocks of a document, at least one. The inclusion probability of a block is proportional to the
// log-uniform mass of its positions, ln((end + 1) / (begin + 1)), and at most 1. Systematic
// sampling with unequal probabilities (Madow 1949) uses one uniform number per document and head.
// The functions are inline, because the CUDA module does not link this library.
inline constexpr std::int64_t kSampledQueries = 128;

struct QuerySample {
  double fraction = 1;  // of the queries; 1: all of them
  std::int64_t seed = 0;

  bool takes_all_queries() const { return fraction >= 1; }
  // Returns one weight per block of the document: the inverse of the inclusion probability
  // (Horvitz-Thompson estimator) if the block is drawn, else 0. `document` identifies the text.
  std::vector<float> horvitz_thompson_weights(std::int64_t length, std::int64_t document,
                                              std::int64_t layer, std::int64_t head) const {
    const auto blocks = (length + kSampledQueries - 1) / kSampledQueries;
    if (takes_all_queries()) return std::vector<float>(as_index(blocks), 1.0f);
    std::vector<double> sizes(as_index(blocks));
    for (std::int64_t b = 0; b < blocks; ++b)
      sizes[as_index(b)] =
          std::log(static_cast<double>(std::min(length, (b + 1) * kSampledQueries) + 1) /
                   static_cast<double>(b * kSampledQueries + 1));
    const auto drawn = std::max<double>(1, std::round(fraction * static_cast<double>(blocks)));
    const auto probabilities = inclusion_probabilities(std::move(sizes), drawn);
    std::uint64_t hash = 0;
    for (const auto part : {seed, document, layer, head}) hash = mix_into_hash(hash, part);
    double next = static_cast<double>(hash >> 11) * 0x1p-53;  // uniform in [0, 1)
    std::vector<float> weights(as_index(blocks));
    double cumulative = 0;
    for (std::size_t b = 0; b < weights.size(); ++b) {
      cumulative = b + 1 == weights.size() ? drawn : cumulative + probabilities[b];  // exact sum
      if (cumulative <= next) continue;
      weights[b] = static_cast<float>(1 / probabilities[b]);
      next += 1;
    }
    return weights;
  }

 private:
  // One SplitMix64 step: mixes `value` into a running hash.
  static std::uint64_t mix_into_hash(std::uint64_t hash, std::int64_t value) {
    auto z = (hash ^ static_cast<std::uint64_t>(value)) + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Scales block sizes to inclusion probabilities min(1, factor * size) that sum to `total`.
  static std::vector<double> inclusion_probabilities(std::vector<double> sizes, double total) {
    std::vector<bool> is_certain(sizes.size());
    for (;;) {
      double rest = 0, certain = 0;
      for (std::size_t b = 0; b < sizes.size(); ++b) (is_certain[b] ? certain : rest) += sizes[b];
      bool found = false;
      for (std::size_t b = 0; b < sizes.size(); ++b) {
        if (is_certain[b]) continue;
        sizes[b] *= (total - certain) / rest;
        if (sizes[b] < 1) continue;
        sizes[b] = 1;
        is_certain[b] = found = true;
      }
      if (!found) return sizes;
    }
  }
};

// Columns of the near-key statistics of query i (row i). `near` stands for near_0, near_1, ...
enum class NearKeyColumn : std::uint8_t {
  sink_0,      // p_i0
  sink_1,      // p_i1
  sink_2,      // p_i2
  sink_3,      // p_i3
  sink_4,      // sink_0 + sink_1 + sink_2 + sink_3
  self,        // p_ii
  prev,        // p_i,i-1; 0 for i = 0
  dup,         // sum of p_ij over j < i with token_j = token_i
  dup_first,   // the term of dup with j = 0
  ind,         // sum of p_ij over 1 <= j <= i with token_(j-1) = token_i
  ind_self,    // the term of ind with j = i
  stream,      // sum of p_ij over j < stream_first or i - j < stream_last
  max_logit,   // largest s_ij
  top1,        // exp(max_logit - lse)
  lse,         // ln sum_j exp(s_ij)
  prev_first,  // p_10 at row 1, else 0: the part of prev in column 0; per document only
  alpha_0,     // p_i0 at rows i < 64, else 0; per document only
  alpha_1,     // p_i1 at rows i < 64, else 0; per document only
  alpha_2,     // p_i2 at rows i < 64, else 0; per document only
  alpha_3,     // p_i3 at rows i < 64, else 0; per document only
  near,        // near_b: sum of p_ij over distances i - j of bit width b; band 0 is j = i
};

// The columns of the all-keys statistics follow the near-key columns; see AttentionColumnLayout.
// dist_0 ... dist_17: mass by bit width of the distance i - j; the last one includes larger widths.
constexpr std::int64_t kDistances = 18;
constexpr std::int64_t kKeyShares = 3;  // columns keys_90, _95, _99, with suffix _low or _high
constexpr std::int64_t kTopKeys = 5;    // columns top_4 to top_1024, with suffix _low or _high
constexpr double kKeyShare[kKeyShares] = {0.90, 0.95, 0.99};
constexpr std::int64_t kTopKey[kTopKeys] = {4, 16, 64, 256, 1024};
// Bins of the histogram of weights p: the bin of p is min(floor(-2 log2 p), kMassBins - 1).
constexpr std::int64_t kMassBins = 64;

inline constexpr char kSinkAboveHalf[] = "sink_above_half";
constexpr std::int64_t kSinkAboveHalfFrom = 8;  // first position that sink_above_half counts

// Offset of each column in a row of attention statistics, for the CPU and CUDA kernels.
struct AttentionColumnLayout {
  std::int64_t window = 256;
  std::int64_t stream_first = 128;
  std::int64_t stream_last = 256;
  bool all_keys = false;          // whether the all-keys columns (group C) exist
  std::int64_t replacements = 0;  // number of kl columns
  std::int64_t kept_sets = 0;     // number of kept / kl_evicted pairs

  static constexpr std::int64_t offset(NearKeyColumn column) {
    return static_cast<std::int64_t>(column);
  }
  // Number of distance bands, near_0 to near_log2(window). Band b: distances of bit width b.
  constexpr std::int64_t near_distance_band_count() const {
    std::int64_t bands = 1;
    for (auto width = window; width > 1; width /= 2) ++bands;
    return bands;
  }
  constexpr std::int64_t near_distance_band_column(std::int64_t band) const {
    return offset(NearKeyColumn::near) + band;
  }
  constexpr std::int64_t near_key_column_count() const {
    return near_distance_band_column(near_distance_band_count());
  }
  constexpr std::int64_t entropy_column() const { return near_key_column_count(); }
  constexpr std::int64_t perplexity_column() const { return near_key_column_count() + 1; }
  // Column entropy_relative of query i: entropy / ln(i + 1), or 0 for i = 0.
  constexpr std::int64_t normalized_entropy_column() const { return near_key_column_count() + 2; }
  constexpr std::int64_t distance_mean_column() const { return near_key_column_count() + 3; }
  constexpr std::int64_t distance_band_column(std::int64_t band) const {
    return near_key_column_count() + 4 + band;
  }
  constexpr std::int64_t key_count_lower_bound_column(std::int64_t k) const {
    return distance_band_column(kDistances) + 2 * k;
  }
  constexpr std::int64_t key_count_upper_bound_column(std::int64_t k) const {
    return key_count_lower_bound_column(k) + 1;
  }
  constexpr std::int64_t top_mass_lower_bound_column(std::int64_t k) const {
    return key_count_lower_bound_column(kKeyShares) + 2 * k;
  }
  constexpr std::int64_t top_mass_upper_bound_column(std::int64_t k) const {
    return top_mass_lower_bound_column(k) + 1;
  }
  constexpr std::int64_t kl_replaced_keys_column(std::int64_t r) const {
    return top_mass_lower_bound_column(kTopKeys) + r;
  }
  constexpr std::int64_t kept_key_mass_column(std::int64_t s) const {
    return kl_replaced_keys_column(replacements) + 2 * s;
  }
  constexpr std::int64_t kl_evicted_column(std::int64_t s) const {
    return kept_key_mass_column(s) + 1;
  }
  // Indicator: 1 at rows i >= kSinkAboveHalfFrom with p_i0 > 0.5, else 0. It is the last column,
  // because statistics written by older versions do not have it.
  constexpr std::int64_t sink_above_half_column() const {
    return all_keys ? kept_key_mass_column(kept_sets) : near_key_column_count();
  }
  constexpr std::int64_t columns() const { return sink_above_half_column() + 1; }
  constexpr bool is_all_keys_column(std::int64_t column) const {
    return column >= near_key_column_count() && column < sink_above_half_column();
  }
};

AttentionColumnLayout attention_column_layout(const StatisticsSettings& settings);
// Returns the column names in layout order: "sink_0" ... "near_8", "entropy", ..., "kl_fp8".
std::vector<std::string> attention_column_names(const StatisticsSettings& settings);
// Returns false for columns that serve only to compute per-document scores.
bool is_per_query_column(std::string_view name);

struct AttentionRequest {
  AttentionColumnLayout layout;
  std::int64_t bucket_size = 1;
  std::int64_t buckets = 0;
  std::span<const KeyReplacement> replacements;  // one kl column each
  std::span<const KeptKeys> kept;                // each has columns kept_NAME and kl_evicted_NAME
  std::span<const float> key_scales = {};        // (key heads) FP8 scales, for Scale::exported
  std::span<const float> key_filters = {};  // (key heads, d) Q-filters, for Rule::filtered_keys
  QuerySample sample = {};                  // queries of the all-keys columns
  std::int64_t layer = 0;
  std::span<const std::int64_t> documents = {};  // document ids of the batch, which seed the sample

  // Returns one sampling weight per block of kSampledQueries queries, for statistics of all keys.
  std::vector<float> horvitz_thompson_weights(std::int64_t length, std::int64_t document,
                                              std::int64_t head) const {
    const auto key = sample.takes_all_queries() ? 0 : documents[static_cast<std::size_t>(document)];
    return sample.horvitz_thompson_weights(length, key, layer, head);
  }
};

// Attention statistics of one batch and layer, summed by document, head and position bucket.
struct LayerAttentionSums {
  std::int64_t documents = 0;
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  std::int64_t columns = 0;
  std::vector<double> sum;       // (documents, heads, buckets, columns)
  std::vector<double> square;    // (documents, heads, buckets, columns)
  std::vector<float> max_logit;  // (documents, heads, buckets); -infinity for a bucket without rows
  // Attention sum_i p_ij to key j in units of 2^-40, (rows, heads); empty if queries are sampled.
  std::vector<std::int64_t> key_sums;
};

inline LayerAttentionSums make_layer_attention_sums(std::int64_t documents, std::int64_t heads,
                                                    std::int64_t buckets, std::int64_t columns) {
  LayerAttentionSums attention{documents, heads, buckets, columns, {}, {}, {}, {}};
  const auto cells = static_cast<std::size_t>(documents * heads * buckets);
  attention.sum.resize(cells * static_cast<std::size_t>(columns));
  attention.square.resize(attention.sum.size());
  attention.max_logit.resize(cells, -__builtin_inff());
  return attention;
}

// Number of (query i, key j) pairs of one document in each TransformerLens detection pattern.
struct TokenPatternCounts {
  std::int64_t tokens = 0;
  std::int64_t dup = 0;        // j < i with token_j = token_i
  std::int64_t dup_first = 0;  // pairs of dup with j = 0
  std::int64_t ind = 0;        // 1 <= j <= i with token_(j-1) = token_i
  std::int64_t ind_self = 0;   // pairs of ind with j = i
};
TokenPatternCounts count_token_patterns(std::span<const std::int32_t> tokens);

// Returns the names of the values per document and head: previous_token_head, duplicate_token_head
// and induction_head with suffixes "", _nobos, _nocur, _nobos_nocur and _abs; sink_alpha_64_k,
// sink_rate_64; optionally key_share_N, key_gini, mean_qk_area and the exact columns.
std::vector<std::string> document_column_names(const StatisticsSettings& settings);
// Column of the DuoAttention score that kvpress computes on the fly.
inline constexpr char kMeanArea[] = "mean_qk_area";
// Returns true if the attention that each key receives is summed, which requires all queries.
inline bool has_key_sums(const StatisticsSettings& settings) {
  return settings.all_keys && settings.all_keys_rows >= 1;
}
// Returns true if all layers have q and k means before RoPE, from which mean_qk_area is computed.
bool has_duo_attention_score(const StatisticsSettings& settings);

// Computes the per-document values of one head. sums: (columns), summed over the rows of the
// document; key_sums: (tokens) or empty.
void fill_document_columns(const AttentionColumnLayout& layout, const TokenPatternCounts& pairs,
                           std::span<const double> sums, std::span<const double> key_sums,
                           std::span<double> values);

// Returns TransformerLens' detect_head score "abs"; `error`: sum over pairs of |p - pattern|.
double head_score_from_absolute_error(double error, double tokens);

AttentionStatistics make_attention_statistics(const StatisticsSettings& settings,
                                              std::int64_t layers, std::int64_t heads);
// Merges `part`, computed from other documents, into `into`.
void merge_attention_statistics(AttentionStatistics& into, const AttentionStatistics& part);

// Summary of a statistic. All fields are NaN without rows; se is NaN with fewer than two documents.
struct ColumnSummary {
  double mean;
  double sd;  // standard deviation over rows
  double se;  // standard error of the mean, over documents
};
// Returns mean, sd and se of a per-query column; bucket -1 means all rows.
ColumnSummary summarize_column(const AttentionStatistics& attention, std::int64_t layer,
                               std::int64_t head, std::int64_t bucket, std::int64_t column);
ColumnSummary summarize_document_values(const AttentionStatistics& attention, std::int64_t layer,
                                        std::int64_t head, std::int64_t column);
// Returns the number of rows in a bucket; bucket -1 means all rows.
std::int64_t count_query_rows(const AttentionStatistics& attention, std::int64_t bucket);

}  // namespace qkscope
