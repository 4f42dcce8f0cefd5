#include "engine/statistics/attention_sums.h"

#include <limits>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr std::int64_t kSinkRows = 64;  // rows that sink_alpha_64 averages over
constexpr double kSinkThreshold = 0.3;  // mean weight above which sink_rate_64 counts a sink
constexpr const char* kDocumentOnly[] = {"prev_first", "alpha_0", "alpha_1",
                                         "alpha_2",    "alpha_3", kSinkAboveHalf};
constexpr double kTopShare[] = {0.01, 0.05, 0.10, 0.20};

// Query-key pairs that a variant of a TransformerLens head score excludes.
struct PatternExclusion {
  const char* suffix;
  bool column_0;
  bool diagonal;
};
constexpr PatternExclusion kExclusions[] = {{"", false, false},
                                            {"_nobos", true, false},
                                            {"_nocur", false, true},
                                            {"_nobos_nocur", true, true}};

// Attention mass and pair counts of one TransformerLens pattern in one document.
struct PatternMass {
  double mass;           // on all pairs of the pattern
  double mass_column_0;  // on pattern pairs with key 0
  double mass_diagonal;  // on pattern pairs with j = i
  double pairs;
  double pairs_column_0;
  double pairs_diagonal;
};

double column_sum(std::span<const double> sums, NearKeyColumn column) {
  return sums[as_index(AttentionColumnLayout::offset(column))];
}

std::vector<PatternMass> compute_pattern_masses(const TokenPatternCounts& pairs,
                                                std::span<const double> sums) {
  const auto sum = [&](NearKeyColumn column) { return column_sum(sums, column); };
  return {{sum(NearKeyColumn::prev), sum(NearKeyColumn::prev_first), 0.0,
           to_double(pairs.tokens - 1), pairs.tokens > 1 ? 1.0 : 0.0, 0.0},
          {sum(NearKeyColumn::dup), sum(NearKeyColumn::dup_first), 0.0, to_double(pairs.dup),
           to_double(pairs.dup_first), 0.0},
          {sum(NearKeyColumn::ind), 0.0, sum(NearKeyColumn::ind_self), to_double(pairs.ind), 0.0,
           to_double(pairs.ind_self)}};
}

void fill_pattern_scores(const PatternMass& pattern, double tokens, double column_0,
                         double diagonal, std::span<double> mul, std::span<double> abs) {
  for (std::size_t e = 0; e < std::size(kExclusions); ++e) {
    const auto& out = kExclusions[e];
    const auto allowed = [&](double all, double on_column_0, double on_diagonal) {
      return all - (out.column_0 ? on_column_0 : 0.0) - (out.diagonal ? on_diagonal : 0.0);
    };
    double all = allowed(tokens, column_0, diagonal);
    if (out.column_0 && out.diagonal) all += 1.0;  // p_00 = 1 was subtracted twice
    const double mass = allowed(pattern.mass, pattern.mass_column_0, pattern.mass_diagonal);
    const double pairs = allowed(pattern.pairs, pattern.pairs_column_0, pattern.pairs_diagonal);
    mul[e] = mass / all;
    abs[e] = head_score_from_absolute_error(all + pairs - 2.0 * mass, tokens);
  }
}

// Attention share of the top 1, 5, 10 and 20 % of keys, and the Gini coefficient over keys.
void measure_key_concentration(std::span<const double> key_sums, std::span<double> values) {
  std::vector<double> sorted(key_sums.begin(), key_sums.end());
  std::ranges::sort(sorted, std::greater<>());
  const double total = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  const auto n = static_cast<double>(sorted.size());
  for (std::size_t i = 0; i < std::size(kTopShare); ++i) {
    const auto keys = static_cast<std::ptrdiff_t>(std::ceil(kTopShare[i] * n));
    values[i] = std::accumulate(sorted.begin(), sorted.begin() + keys, 0.0) / total;
  }
  double weighted = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    weighted += static_cast<double>(i + 1) * sorted[i];
  values[std::size(kTopShare)] = (n + 1.0 - 2.0 * weighted / total) / n;
}

template <typename T>
void add_elementwise(std::vector<T>& into, const std::vector<T>& part) {
  QKSCOPE_ASSERT(into.size() == part.size());
  for (std::size_t i = 0; i < into.size(); ++i) into[i] += part[i];
}

void append_all_keys_column_names(const StatisticsSettings& settings,
                                  std::vector<std::string>& names) {
  names.insert(names.end(), {"entropy", "perplexity", "entropy_relative", "distance_mean"});
  for (std::int64_t width = 0; width < kDistances; ++width)
    names.push_back(fmt::format("dist_{}", width));
  for (const auto share : kKeyShare)
    for (const auto* end : {"low", "high"})
      names.push_back(fmt::format("keys_{}_{}", std::lround(100 * share), end));
  for (const auto keys : kTopKey)
    for (const auto* end : {"low", "high"}) names.push_back(fmt::format("top_{}_{}", keys, end));
  for (const auto& replacement : settings.kl) names.push_back("kl_" + replacement.name);
  for (const auto& kept : settings.keep) {
    names.push_back("kept_" + kept.name);
    names.push_back("kl_evicted_" + kept.name);
  }
}

}  // namespace

AttentionColumnLayout attention_column_layout(const StatisticsSettings& settings) {
  return {.window = settings.window,
          .stream_first = settings.stream_first,
          .stream_last = settings.stream_last,
          .all_keys = settings.all_keys,
          .replacements = std::ssize(settings.kl),
          .kept_sets = std::ssize(settings.keep)};
}

std::vector<std::string> attention_column_names(const StatisticsSettings& settings) {
  const auto layout = attention_column_layout(settings);
  std::vector<std::string> names = {"sink_0",     "sink_1",  "sink_2",    "sink_3",    "sink_4",
                                    "self",       "prev",    "dup",       "dup_first", "ind",
                                    "ind_self",   "stream",  "max_logit", "top1",      "lse",
                                    "prev_first", "alpha_0", "alpha_1",   "alpha_2",   "alpha_3"};
  QKSCOPE_ASSERT(std::ssize(names) == layout.near_distance_band_column(0));
  for (std::int64_t band = 0; band < layout.near_distance_band_count(); ++band)
    names.push_back(fmt::format("near_{}", band));
  if (settings.all_keys) append_all_keys_column_names(settings, names);
  names.emplace_back(kSinkAboveHalf);
  QKSCOPE_ASSERT(std::ssize(names) == layout.columns());
  return names;
}

bool is_per_query_column(std::string_view name) {
  return std::ranges::find(kDocumentOnly, name) == std::end(kDocumentOnly);
}

TokenPatternCounts count_token_patterns(std::span<const std::int32_t> tokens) {
  TokenPatternCounts pairs;
  pairs.tokens = std::ssize(tokens);
  std::unordered_map<std::int32_t, std::int64_t> seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto& before = seen[tokens[i]];
    pairs.dup += before;
    // Every earlier occurrence j < i of the token makes key j + 1 <= i an induction key.
    pairs.ind += before;
    if (i > 0 && tokens[0] == tokens[i]) ++pairs.dup_first;
    if (i > 0 && tokens[i - 1] == tokens[i]) ++pairs.ind_self;
    ++before;
  }
  return pairs;
}

double head_score_from_absolute_error(double error, double tokens) {
  // TransformerLens rounds to three decimals, half to even (Python's round).
  return 1.0 - std::nearbyint(error / tokens * 1000.0) / 1000.0;
}

std::vector<std::string> document_column_names(const StatisticsSettings& settings) {
  std::vector<std::string> names;
  for (const auto* pattern : {"previous_token_head", "duplicate_token_head", "induction_head"}) {
    for (const auto& out : kExclusions) names.push_back(fmt::format("{}{}", pattern, out.suffix));
    for (const auto& out : kExclusions)
      names.push_back(fmt::format("{}{}_abs", pattern, out.suffix));
  }
  for (int key = 0; key < 4; ++key) names.push_back(fmt::format("sink_alpha_64_{}", key));
  names.push_back("sink_rate_64");
  if (has_key_sums(settings)) {
    for (const auto share : kTopShare)
      names.push_back(fmt::format("key_share_{}", std::lround(100 * share)));
    names.push_back("key_gini");
  }
  if (has_duo_attention_score(settings)) names.emplace_back(kMeanArea);
  if (settings.exact_rows > 0) {
    for (const auto share : kKeyShare)
      names.push_back(fmt::format("keys_{}_exact", std::lround(100 * share)));
    for (const auto keys : kTopKey) names.push_back(fmt::format("top_{}_exact", keys));
  }
  return names;
}

bool has_duo_attention_score(const StatisticsSettings& settings) {
  const auto chosen = [](const auto& list, auto value) {
    return list.empty() || std::ranges::find(list, value) != list.end();
  };
  return settings.moments && settings.near_keys && !settings.layers &&
         chosen(settings.kinds, VectorKind::query) && chosen(settings.kinds, VectorKind::key) &&
         chosen(settings.stages, VectorStage::pre);
}

void fill_document_columns(const AttentionColumnLayout& layout, const TokenPatternCounts& pairs,
                           std::span<const double> sums, std::span<const double> key_sums,
                           std::span<double> values) {
  QKSCOPE_ASSERT(std::ssize(sums) == layout.columns());
  constexpr auto kScores = std::size(kExclusions);
  for (const auto& pattern : compute_pattern_masses(pairs, sums)) {
    fill_pattern_scores(pattern, static_cast<double>(pairs.tokens),
                        column_sum(sums, NearKeyColumn::sink_0),
                        column_sum(sums, NearKeyColumn::self), values.subspan(0, kScores),
                        values.subspan(kScores, kScores));
    values = values.subspan(2 * kScores);
  }
  const bool long_enough = pairs.tokens >= kSinkRows;
  for (std::int64_t key = 0; key < 4; ++key)
    values[as_index(key)] =
        long_enough ? sums[as_index(AttentionColumnLayout::offset(NearKeyColumn::alpha_0) + key)] /
                          static_cast<double>(kSinkRows - key)
                    : kNan;
  values[4] = long_enough ? (values[0] > kSinkThreshold ? 1.0 : 0.0) : kNan;
  if (!key_sums.empty()) measure_key_concentration(key_sums, values.subspan(5));
}

AttentionStatistics make_attention_statistics(const StatisticsSettings& settings,
                                              std::int64_t layers, std::int64_t heads) {
  AttentionStatistics a;
  a.columns = attention_column_names(settings);
  a.document_columns = document_column_names(settings);
  a.layers = layers;
  a.heads = heads;
  a.buckets = settings.buckets;
  const auto cells = as_index(layers * heads * a.buckets);
  const auto document_cells = as_index(layers * heads * (a.buckets + 1));
  a.rows.resize(as_index(a.buckets));
  a.sum.resize(cells * a.columns.size());
  a.square.resize(a.sum.size());
  a.max_logit.resize(cells, -std::numeric_limits<float>::infinity());
  a.row_square.resize(as_index(a.buckets + 1));
  a.document_square.resize(document_cells * a.columns.size());
  a.document_cross.resize(a.document_square.size());
  a.document_counts.resize(a.document_columns.size());
  a.document_sum.resize(as_index(layers * heads) * a.document_columns.size());
  a.document_sum_square.resize(a.document_sum.size());
  if (has_key_sums(settings)) {
    a.key_mass.resize(cells);
    a.key_observed.resize(cells);
  }
  return a;
}

void merge_attention_statistics(AttentionStatistics& into, const AttentionStatistics& part) {
  QKSCOPE_ASSERT(into.columns == part.columns);
  using A = AttentionStatistics;
  into.documents += part.documents;
  add_elementwise(into.rows, part.rows);
  add_elementwise(into.document_counts, part.document_counts);
  for (const auto field :
       {&A::sum, &A::square, &A::document_square, &A::document_cross, &A::document_sum,
        &A::document_sum_square, &A::row_square, &A::key_mass, &A::key_observed})
    add_elementwise(into.*field, part.*field);
  std::ranges::transform(into.max_logit, part.max_logit, into.max_logit.begin(),
                         [](float a, float b) { return std::max(a, b); });
}

std::int64_t count_query_rows(const AttentionStatistics& attention, std::int64_t bucket) {
  if (bucket >= 0) return attention.rows[as_index(bucket)];
  return std::accumulate(attention.rows.begin(), attention.rows.end(), std::int64_t{0});
}

ColumnSummary summarize_column(const AttentionStatistics& a, std::int64_t layer, std::int64_t head,
                               std::int64_t bucket, std::int64_t column) {
  const auto columns = std::ssize(a.columns);
  const auto rows = count_query_rows(a, bucket);
  if (rows == 0) return {kNan, kNan, kNan};
  const auto n = static_cast<double>(rows);
  double sum = 0;
  double square = 0;
  for (auto b = bucket < 0 ? 0 : bucket; b < (bucket < 0 ? a.buckets : bucket + 1); ++b) {
    const auto i = as_index(((layer * a.heads + head) * a.buckets + b) * columns + column);
    sum += a.sum[i];
    square += a.square[i];
  }
  const double mean = sum / n;
  const double variance = std::max(0.0, square / n - mean * mean);
  const auto document_bucket = bucket < 0 ? a.buckets : bucket;
  const auto i =
      as_index(((layer * a.heads + head) * (a.buckets + 1) + document_bucket) * columns + column);
  const auto documents = static_cast<double>(a.documents);
  // Cluster-robust variance of a ratio estimator: squared residuals of the document sums.
  const double residual = std::max(0.0, a.document_square[i] - 2.0 * mean * a.document_cross[i] +
                                            mean * mean * a.row_square[as_index(document_bucket)]);
  const double se =
      a.documents < 2 ? kNan : std::sqrt(residual * documents / (documents - 1.0)) / n;
  return {mean, std::sqrt(variance), se};
}

ColumnSummary summarize_document_values(const AttentionStatistics& a, std::int64_t layer,
                                        std::int64_t head, std::int64_t column) {
  const auto count = a.document_counts[as_index(column)];
  if (count == 0) return {kNan, kNan, kNan};
  const auto i = as_index((layer * a.heads + head) * std::ssize(a.document_columns) + column);
  const auto n = static_cast<double>(count);
  const double mean = a.document_sum[i] / n;
  const double variance = std::max(0.0, a.document_sum_square[i] / n - mean * mean);
  const double se = count < 2 ? kNan : std::sqrt(variance / (n - 1.0));
  return {mean, std::sqrt(variance), se};
}

}  // namespace qkscope
