// Effects through the softmax: how attention and output of a head change if a component is removed.
#include <algorithm>
#include <map>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

// Returns (d_head): the output of the head before the output projection.
std::vector<double> weighted_values(const std::vector<double>& attention, const Tensor& values) {
  std::vector<double> sum(as_index(values.dim(1)), 0.0);
  const float* value = values.data<float>();
  for (const double weight : attention)
    for (double& x : sum) x += weight * static_cast<double>(*value++);
  return sum;
}

// Attention and output change of one query if one component is removed.
struct Effect {
  std::vector<double> attention;  // (keys)
  double output_change = 0;
};

// Returns the effects of all components of a query of a head, then of all components of its keys.
std::vector<Effect> row_effects(const HeadDecomposition& head, std::int64_t query) {
  const auto q = head.scaled_queries(head.q.row_of(query));  // (q components, d_head)
  const auto whole = column_sums(q);
  Matrix parts(q.rows + head.k.components(), query + 1);  // contributions to the scores
  std::vector<double> scores(as_index(query) + 1);
  parallel_for(query + 1, [&](std::int64_t j) {
    const auto k = head.rotated_keys(j);  // all keys from 0 on were collected
    auto column = multiply(q, column_sums(k));
    scores[as_index(j)] = sum(column);
    const auto of_k = multiply(k, whole);
    column.insert(column.end(), of_k.begin(), of_k.end());
    for (std::int64_t c = 0; c < parts.rows; ++c) parts(c, j) = column[as_index(c)];
  });
  const auto before = weighted_values(head.attention(scores), head.v);
  std::vector<Effect> effects(as_index(parts.rows));
  parallel_for(parts.rows, [&](std::int64_t c) {
    auto without = scores;
    add_scaled(-1, {parts.row(c), without.size()}, without);
    auto& effect = effects[as_index(c)];
    effect.attention = head.attention(std::move(without));
    auto change = weighted_values(effect.attention, head.v);
    add_scaled(-1, before, change);
    effect.output_change = norm(change) / norm(before);
  });
  return effects;
}

}  // namespace

Table ScoreAttribution::effect_table() const {
  return translate_exceptions([&] {
    const auto& state = *state_;
    if (state.heads.front().v.empty())
      bad_input("effects were not computed; set AttributionOptions::effect");
    Table table =
        pair_table("text side, text component, real attention_without, real output_change");
    std::map<std::pair<const HeadDecomposition*, std::int64_t>, std::vector<Effect>> rows;
    for (std::size_t p = 0; p < state.pairs.size(); ++p) {
      const auto query = state.pairs[p].query;
      const auto& head = state.head(p);
      auto& effects = rows[{&head, query}];
      if (effects.empty()) effects = row_effects(head, query);
      for (std::size_t c = 0; c < effects.size(); ++c) {
        const bool of_q = c < head.q.labels.size();
        add_pair_row(
            table, state, p,
            {std::string(of_q ? "q" : "k"),
             of_q ? head.q.labels[c] : head.k.labels[c - head.q.labels.size()],
             effects[c].attention[as_index(state.pairs[p].key)], effects[c].output_change});
      }
    }
    return table;
  });
}

}  // namespace qkscope
