// Attributed scores of one text, and the two forward passes that compute them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/attribution/components.h"
#include "analysis/attribution/decomposition.h"
#include "qkscope/experimental/attribution.h"

namespace qkscope {

struct ScoreAttribution::State {
  std::string label;
  std::string text_name;
  std::map<std::int64_t, std::string> tokens;  // by position, of all pairs
  std::int64_t furthest = 0;                   // largest distance of distance_table()
  std::vector<HeadDecomposition> heads;
  std::vector<ScorePair> pairs;

  const HeadDecomposition& head(std::size_t pair) const {
    return *std::ranges::find(heads, pairs[pair].head, &HeadDecomposition::head);
  }
  Matrix contributions(std::size_t pair) const {
    const auto& of_head = head(pair);
    return of_head.contributions(of_head.q.row_at_position(pairs[pair].query),
                                 of_head.k.row_at_position(pairs[pair].key));
  }
};

// Returns the `top` indices below `count` with the largest size(index), or all if `top` is 0;
// largest first, ties go to the lower index.
template <typename Size>
std::vector<std::size_t> largest_indices(std::size_t count, std::int64_t top, Size size) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto kept = top == 0 ? count : std::min(count, static_cast<std::size_t>(top));
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(kept), {},
                            [&](std::size_t i) { return std::pair(-size(i), i); });
  order.resize(kept);
  return order;
}

// Chooses the keys to attribute for one query. attention: shape (keys up to the query).
using ChooseKeys =
    std::function<std::vector<std::int64_t>(std::int64_t query, std::span<const float> attention)>;

// Parses AttributionOptions::keys for a text of `length` tokens.
ChooseKeys parse_key_choice(const std::string& keys, std::int64_t length);

// First pass: runs the model up to the attention of the last head and calls `choose` for every head
// and query, in the order of `heads`, then of `queries` (ascending). Returns the chosen pairs with
// their attention; score, residual and magnitude are 0.
std::vector<ScorePair> choose_pairs(const Model& model, const std::vector<std::int32_t>& tokens,
                                    const std::vector<AttentionHead>& heads,
                                    const std::vector<std::int64_t>& queries,
                                    const ChooseKeys& choose);

// Second pass: splits the queries and keys of each head's pairs into components. With
// options.values, splits all keys up to the last query, not only the keys of the pairs.
std::vector<HeadDecomposition> split_heads(const Model& model,
                                           const std::vector<std::int32_t>& tokens,
                                           const std::vector<AttentionHead>& heads,
                                           const std::vector<ScorePair>& pairs,
                                           const ComponentOptions& options);

// Throws a bad-input error if the list is empty or contains a head that the model lacks, a head
// that does not run on text, or a duplicate.
void check_heads(const std::vector<AttentionHead>& heads, const ModelConfig& model);

// Returns the name, or the last part of the model's folder if the name is empty.
std::string model_label(const std::string& name, const Model& model);

}  // namespace qkscope
