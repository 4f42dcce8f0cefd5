// The columns of groups B and C: one table of their names and places, sums of them over rows,
// buckets and documents, and what follows from the sums.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

// Group B: the value of each column at a row (a query). In this order; then near_0 ... near_b.
enum class NearColumn : std::uint8_t {
  sink_0,      // p_i0
  sink_1,      // p_i1
  sink_2,      // p_i2
  sink_3,      // p_i3
  sink_4,      // their sum
  self,        // p_ii
  prev,        // p_i,i-1; 0 for i = 0
  dup,         // sum of p_ij over j < i with token_j = token_i
  dup_first,   // its part at j = 0
  ind,         // sum of p_ij over 1 <= j <= i with token_(j-1) = token_i
  ind_self,    // its part at j = i
  stream,      // p over j < stream_first or i - j < stream_last
  max_logit,   // largest s_ij
  top1,        // exp(max_logit - lse)
  lse,         // ln sum_j exp(s_ij)
  prev_first,  // p_10 at row 1, else 0: what prev has in column 0. Only per document
  alpha_0,     // p_i0 at rows i < 64, else 0. Only per document, as those that follow
  alpha_1,     // p_i1 at rows i < 64
  alpha_2,     // p_i2 at rows i < 64
  alpha_3,     // p_i3 at rows i < 64
  near,        // near_b: p over distances i - j of bit width b; 0: the row itself. Last
};

// Group C, after group B. Then kl_NAME for each replacement, kept_NAME and kl_evicted_NAME for each
// set of kept keys.
constexpr std::int64_t kDistances =
    18;  // dist_0 ... dist_17: bit width of i - j, the last has the rest
constexpr std::int64_t kKeyShares = 3;  // keys_90, keys_95, keys_99: each _low and _high
constexpr std::int64_t kTopKeys = 5;    // top_4, _16, _64, _256, _1024: each _low and _high
constexpr double kKeyShare[kKeyShares] = {0.90, 0.95, 0.99};
constexpr std::int64_t kTopKey[kTopKeys] = {4, 16, 64, 256, 1024};
constexpr std::int64_t kMassBins =
    64;  // of -log2 p: bin b holds floor(-2 log2 p) = b, the last has the rest

// Places of columns in the sums, for both devices.
struct ColumnLayout {
  std::int64_t window = 256;
  std::int64_t stream_first = 128;
  std::int64_t stream_last = 256;
  bool all_keys = false;          // group C
  std::int64_t replacements = 0;  // kl
  std::int64_t kept_sets = 0;     // keep

  static constexpr std::int64_t at(NearColumn column) { return static_cast<std::int64_t>(column); }
  // near_0 ... near_log2(window)
  constexpr std::int64_t near_bands() const {
    std::int64_t bands = 1;
    for (auto width = window; width > 1; width /= 2) ++bands;
    return bands;
  }
  constexpr std::int64_t near(std::int64_t band) const { return at(NearColumn::near) + band; }
  constexpr std::int64_t near_end() const { return near(near_bands()); }  // columns of group B
  constexpr std::int64_t entropy() const { return near_end(); }
  constexpr std::int64_t perplexity() const { return near_end() + 1; }  // exp(entropy)
  constexpr std::int64_t entropy_relative() const {
    return near_end() + 2;
  }  // / ln(i + 1); 0 for i = 0
  constexpr std::int64_t distance_mean() const { return near_end() + 3; }
  constexpr std::int64_t dist(std::int64_t width) const { return near_end() + 4 + width; }
  constexpr std::int64_t keys_low(std::int64_t k) const { return dist(kDistances) + 2 * k; }
  constexpr std::int64_t keys_high(std::int64_t k) const { return keys_low(k) + 1; }
  constexpr std::int64_t top_low(std::int64_t k) const { return keys_low(kKeyShares) + 2 * k; }
  constexpr std::int64_t top_high(std::int64_t k) const { return top_low(k) + 1; }
  constexpr std::int64_t kl(std::int64_t r) const { return top_low(kTopKeys) + r; }
  constexpr std::int64_t kept(std::int64_t s) const { return kl(replacements) + 2 * s; }
  constexpr std::int64_t kl_evicted(std::int64_t s) const { return kept(s) + 1; }
  constexpr std::int64_t columns() const { return all_keys ? kept(kept_sets) : near_end(); }
};

ColumnLayout column_layout(const StatisticsSettings& settings);
// The names by place: "sink_0" ... "near_8", "entropy", ..., "kl_fp8".
std::vector<std::string> column_names(const StatisticsSettings& settings);
// Whether a column belongs into tables over rows; the others serve only scores per document.
bool is_row_column(std::string_view name);

// Groups B and C: what is added up of the attention of a layer.
struct AttentionRequest {
  ColumnLayout layout;
  std::int64_t bucket_size = 1;
  std::int64_t buckets = 0;
  std::span<const KeyReplacement> replacements;  // group C: kl
  std::span<const KeptKeys> kept;                // group C: kept, kl_evicted
  std::span<const float> key_scales = {};   // (key heads) of the layer, for keys of exported scales
  std::span<const float> key_filters = {};  // (key heads, d) of the layer, for filtered keys
};

// What one batch gives for one layer: sums over the rows of each document, head and bucket.
struct LayerAttention {
  std::int64_t documents = 0;  // of the batch
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  std::int64_t columns = 0;
  std::vector<double> sum;       // (documents, heads, buckets, columns)
  std::vector<double> square;    // (documents, heads, buckets, columns)
  std::vector<float> max_logit;  // (documents, heads, buckets); -infinity where there is no row
  // Group C: sum_i p_ij in units of 2^-40, key after key, document after document: (rows of the
  // batch, heads) with the head running fastest; empty without group C.
  std::vector<std::int64_t> key_sums;
};

inline LayerAttention empty_attention(std::int64_t documents, std::int64_t heads,
                                      std::int64_t buckets, std::int64_t columns) {
  LayerAttention attention{documents, heads, buckets, columns, {}, {}, {}, {}};
  const auto cells = static_cast<std::size_t>(documents * heads * buckets);
  attention.sum.resize(cells * static_cast<std::size_t>(columns));
  attention.square.resize(attention.sum.size());
  attention.max_logit.resize(cells, -__builtin_inff());
  return attention;
}

// Pairs of one document that a pattern of TransformerLens has, by its tokens alone.
struct TokenPairs {
  std::int64_t tokens = 0;
  std::int64_t dup = 0;        // j < i with token_j = token_i
  std::int64_t dup_first = 0;  // of those, j = 0
  std::int64_t ind = 0;        // 1 <= j <= i with token_(j-1) = token_i
  std::int64_t ind_self = 0;   // of those, j = i
};
TokenPairs count_pairs(std::span<const std::int32_t> tokens);

// Values per document and head, beside the means over its rows: previous_token_head,
// duplicate_token_head, induction_head with suffixes "", _nobos, _nocur, _nobos_nocur and _abs;
// sink_alpha_64_k and sink_rate_64; with group C shares of key mass and their Gini coefficient.
std::vector<std::string> document_column_names(const StatisticsSettings& settings);
// Where the means of q and k before RoPE are known of every layer: mean_qk_area, kvpress' measure
// of how far back a head looks. After the others, as are keys_90_exact ... top_1024_exact.
inline constexpr char kMeanArea[] = "mean_qk_area";
bool keeps_mean_area(const StatisticsSettings& settings);

// The values of one document and head; `sums` (columns) over all its rows, `key_sums` (tokens) or
// empty.
void document_values(const ColumnLayout& layout, const TokenPairs& pairs,
                     std::span<const double> sums, std::span<const double> key_sums,
                     std::span<double> values);

// TransformerLens' score by its measure "abs": `difference` is the sum over pairs of |p - pattern|.
double abs_pattern_score(double difference, double tokens);

// No documents.
AttentionStatistics empty_attention(const StatisticsSettings& settings, std::int64_t layers,
                                    std::int64_t heads);
// into = into and part together, documents of `part` after those of `into`.
void merge(AttentionStatistics& into, const AttentionStatistics& part);

// What a table shows of a column: bucket -1 is all rows. NaN where there are no rows, _se also
// where there is one document.
struct ColumnValue {
  double mean;
  double sd;  // over rows
  double se;  // of the mean, over documents
};
ColumnValue column_value(const AttentionStatistics& attention, std::int64_t layer,
                         std::int64_t head, std::int64_t bucket, std::int64_t column);
// Likewise of a document column: the plain mean over documents, sd over documents.
ColumnValue document_value(const AttentionStatistics& attention, std::int64_t layer,
                           std::int64_t head, std::int64_t column);
std::int64_t rows_of(const AttentionStatistics& attention, std::int64_t bucket);  // -1: all

}  // namespace qkscope
