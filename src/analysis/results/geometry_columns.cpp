#include "analysis/results/geometry_columns.h"

#include <fmt/format.h>

#include "analysis/results/row_builder.h"

namespace qkscope {
namespace {

using enum GeometrySource;
using enum HeadMapScale;

// Ranks of the covariance of queries, keys and values, before and after RoPE.
void add_rank_columns(std::vector<GeometryColumn>& columns) {
  const std::pair<const char*, const char*> vectors[] = {{"q_pre", "queries before RoPE"},
                                                         {"q_post", "queries after RoPE"},
                                                         {"k_pre", "keys before RoPE"},
                                                         {"k_post", "keys after RoPE"},
                                                         {"v_pre", "values"}};
  for (const auto& [name, title] : vectors) {
    const auto add = [&, what = title, suffix = name](const char* column, const char* meaning,
                                                      HeadMapScale scale, bool has_error) {
      columns.push_back({fmt::format("{}_{}", column, suffix), "rank", moments,
                         fmt::format(fmt::runtime(meaning), what), scale, has_error});
    };
    add("rank_participation",
        "Participation rank of the covariance of {}: how many directions share the variance",
        to_largest, true);
    add("rank_entropy",
        "Effective rank of {}: exp of the entropy of the eigenvalues of the covariance", to_largest,
        false);
    add("rank_entropy_share", "Effective rank of {} over the dimension of the head", to_one, false);
    add("rank_90", "Principal components that hold 90 % of the variance of {}", to_largest, false);
    add("entropy_top",
        "Entropy of the 16 largest eigenvalues of the covariance of {} over ln 16: near 0 one "
        "direction dominates",
        to_one, false);
  }
}

}  // namespace

const std::vector<GeometryColumn>& geometry_columns() {
  // clang-format off
  static const std::vector<GeometryColumn> kColumns = [] {
    std::vector<GeometryColumn> columns;
    add_rank_columns(columns);
    const std::vector<GeometryColumn> more = {
      {"logit_rank_90", "rank", moments, "Components that hold 90 % of the mean square of q.k over independent queries and keys"},
      {"logit_rank_participation", "rank", moments, "Participation rank of the mean square of q.k over independent queries and keys"},
      {"weight_rank_90", "rank", weights, "Components that hold 90 % of the squared singular values of W_Q^T W_K, without RoPE"},
      {"weight_rank_participation", "rank", weights, "Participation rank of the squared singular values of W_Q^T W_K, without RoPE"},

      {"concentration_q", "frequency", rotary, "Length of a rotary pair's mean over its mean length, queries before RoPE, mean over pairs: 1 if all queries point the same way", to_one},
      {"concentration_k", "frequency", rotary, "Length of a rotary pair's mean over its mean length, keys before RoPE, mean over pairs: 1 if all keys point the same way", to_one},
      {"frequency_use_entropy", "frequency", rotary, "Entropy in nats of the shares of rotary pairs in the variance of the score at distance 0"},
      {"frequency_use_slow", "frequency", rotary, "Share of the slowest quarter of the rotary pairs in the variance of the score at distance 0", to_one},
      {"massive_q", "frequency", moments, "Largest root mean square of a dimension of the queries over the mean of all dimensions"},
      {"massive_k", "frequency", moments, "Largest root mean square of a dimension of the keys over the mean of all dimensions"},
      {"massive_count_q", "frequency", moments, "Dimensions of the queries whose root mean square exceeds 8 times the mean"},
      {"massive_count_k", "frequency", moments, "Dimensions of the keys whose root mean square exceeds 8 times the mean"},

      {"distance_preference", "distance", rotary, "Distance in tokens at which mean query and mean key score highest"},
      {"distance_preference_range", "distance", rotary, "Range over distances of the score of mean query and mean key"},
      {"distance_preference_r", "distance", attention, "Correlation over bins of distances of that score with the log of the measured attention", signed_to_one},
      {"decay_exponent", "distance", attention, "Slope of ln attention per key against ln distance: -1 if attention falls as 1 / distance", around_zero, true},
      {"decay_r2", "distance", attention, "R2 of the straight line behind decay_exponent", to_one},
      {"distance_share", "distance", rows, "Share of the variance of scores that the distance of query and key explains", to_one, true},
      {"distance_share_null", "distance", rows, "distance_share with the positions of a text's keys permuted", to_one, true, true},
      {"key_share", "distance", rows, "Share of the variance of scores that the key alone explains", to_one, true},
      {"query_share", "distance", rows, "Share of the variance of scores that the query alone explains", to_one, true},
      {"residual_share", "distance", rows, "Share of the variance of scores that distance, key and query alone leave", signed_to_one},
      {"symbolic_score", "distance", rows, "Correlation of a score with that of the same key content moved to another position", signed_to_one, true},
      {"positional_score", "distance", rows, "Correlation of a score with that of another key content at the same position", signed_to_one, true},
      {"swap_null", "distance", rows, "Correlation of a score with that of another content at another position", signed_to_one, false, true},

      {"sink_fraction", "sinks", attention, "Share of queries beyond the first 8 tokens that give the first token more than half of their attention", to_one, true},
    };
    columns.insert(columns.end(), more.begin(), more.end());
    return columns;
  }();
  // clang-format on
  return kColumns;
}

const std::vector<GeometryQuestion>& geometry_questions() {
  static const std::vector<GeometryQuestion> kQuestions = {
      {"rank", "How many directions does a head use?",
       "Ranks of the covariance of queries, keys and values, of the scores and of the weights: a "
       "rank near 1 is one direction, a rank near the head dimension is an even spread."},
      {"frequency", "Which RoPE frequencies and dimensions carry the score?",
       "Concentrated pairs point the same way in every token; slow pairs barely turn within a "
       "text; massive dimensions are far longer than the mean."},
      {"distance", "Does the score depend on distance or on content?",
       "What mean query and mean key prefer, how measured attention decays with distance, and "
       "which share of the scores distance, key and query explain."},
      {"sinks", "How often is attention parked on the first token?",
       "Share of queries that give the first token more than half of their attention."}};
  return kQuestions;
}

std::string missing_geometry_reason(const GeometryColumn& column, const AnalysisRun& run,
                                    const HeadReport& head) {
  if (column.source == weights) return "needs_weights";
  if (column.source == rows && run.from_sums) return "needs_rows";
  if (column.source != rows && !run.from_sums) return "needs_statistics";
  const bool of_frequencies =
      column.source == rotary || column.name.starts_with("distance_preference");
  if (of_frequencies && head.rope == RopeUse::nope) return "no_rope";
  if (column.source == attention) return "needs_attention";
  return run.from_sums ? "not_in_statistics" : undefined_head_reason(head);
}

}  // namespace qkscope
