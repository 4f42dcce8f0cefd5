// Effects through the softmax: what happens to attention and output of a head without a component.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/numerics/products.h"
#include "qkscope/tables.h"

namespace qkscope {
namespace {

// Attention of a query over its keys, from scores before soft cap and mask. scores: (keys up to the
// query).
std::vector<double> attention_of(std::vector<double> scores, const HeadOutput& output) {
  const auto query = std::ssize(scores) - 1;
  const auto first =
      output.window > 0 ? std::max<std::int64_t>(0, query - output.window + 1) : std::int64_t{0};
  double highest = output.has_sink ? output.sink : -std::numeric_limits<double>::infinity();
  for (auto j = first; j <= query; ++j) {
    double& score = scores[as_index(j)];
    if (output.softcap > 0) score = output.softcap * std::tanh(score / output.softcap);
    highest = std::max(highest, score);
  }
  double sum = output.has_sink ? std::exp(output.sink - highest) : 0.0;
  for (std::int64_t j = 0; j <= query; ++j) {
    double& score = scores[as_index(j)];
    score = j < first ? 0.0 : std::exp(score - highest);
    sum += score;
  }
  for (double& score : scores) score /= sum;
  return scores;
}

// Returns (d_head): the output of the head before the output projection.
std::vector<double> weighted_values(const std::vector<double>& attention, const Tensor& values) {
  const auto d = values.dim(1);
  std::vector<double> sum(as_index(d), 0.0);
  for (std::size_t j = 0; j < attention.size(); ++j)
    for (std::int64_t c = 0; c < d; ++c)
      sum[as_index(c)] +=
          attention[j] *
          static_cast<double>(values.data<float>()[static_cast<std::int64_t>(j) * d + c]);
  return sum;
}

double norm_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

// Attention and output of one query without one component.
struct Effect {
  bool query_side = false;
  std::int64_t component = 0;
  std::vector<double> attention;  // (keys)
  double output_change = 0;
};

// Effects of every component of one query of a head, first on the side of the query.
class RowEffects {
 public:
  RowEffects(const HeadDecomposition& head, const HeadOutput& output, std::int64_t query)
      : output_(output), scores_(as_index(query) + 1) {
    const auto q = head.scaled_queries(head.q.row_of(query));  // (q components, d_head)
    const auto whole = sum_of_rows(q);
    by_q_ = Matrix(q.rows, query + 1);
    by_k_ = Matrix(head.k.components(), query + 1);
    parallel_for(query + 1, [&](std::int64_t j) {
      const auto k = head.rotated_keys(j);  // all keys from 0 on were collected
      const auto of_q = multiply_transposed(q, sum_of_rows(k));
      const auto of_k = multiply_transposed(k, whole);
      for (std::int64_t c = 0; c < of_q.rows; ++c) by_q_(c, j) = of_q(c, 0);
      for (std::int64_t c = 0; c < of_k.rows; ++c) by_k_(c, j) = of_k(c, 0);
      scores_[as_index(j)] = std::accumulate(of_q.data.begin(), of_q.data.end(), 0.0);
    });
    before_ = weighted_values(attention_of(scores_, output_), output_.values);
  }

  std::vector<Effect> all() const {
    std::vector<Effect> effects(as_index(by_q_.rows + by_k_.rows));
    parallel_for(std::ssize(effects), [&](std::int64_t i) {
      const bool query_side = i < by_q_.rows;
      effects[as_index(i)] = without(query_side, query_side ? i : i - by_q_.rows);
    });
    return effects;
  }

 private:
  Effect without(bool query_side, std::int64_t component) const {
    const auto& parts = query_side ? by_q_ : by_k_;
    auto scores = scores_;
    for (std::size_t j = 0; j < scores.size(); ++j)
      scores[j] -= parts(component, static_cast<std::int64_t>(j));
    Effect effect{query_side, component, attention_of(std::move(scores), output_), 0.0};
    auto change = weighted_values(effect.attention, output_.values);
    for (std::size_t c = 0; c < change.size(); ++c) change[c] -= before_[c];
    effect.output_change = norm_of(change) / norm_of(before_);
    return effect;
  }

  const HeadOutput& output_;
  Matrix by_q_;                 // (q components, keys) contributions summed over k components
  Matrix by_k_;                 // (k components, keys) contributions summed over q components
  std::vector<double> scores_;  // (keys)
  std::vector<double> before_;  // (d_head) output with all components
};

}  // namespace

Table ScoreAttribution::effect_table() const {
  return translate_exceptions([&] {
    const auto& state = *state_;
    if (state.outputs.empty())
      bad_input("effects were not computed; set AttributionOptions::effect");
    Table table = pair_columns();
    using Type = Table::Type;
    table.column("side", Type::text).column("component", Type::text);
    table.column("attention_without", Type::real).column("output_change", Type::real);
    std::map<std::pair<std::size_t, std::int64_t>, std::vector<Effect>> rows;
    for (std::size_t p = 0; p < state.pairs.size(); ++p) {
      const auto& pair = state.pairs[p];
      const auto& head = state.head(p);
      auto& effects = rows[{state.head_of_pair[p], pair.query}];
      if (effects.empty())
        effects = RowEffects(head, state.outputs[state.head_of_pair[p]], pair.query).all();
      for (const auto& effect : effects)
        add_pair_row(table, state, p,
                     {std::string(effect.query_side ? "q" : "k"),
                      (effect.query_side ? head.q : head.k).labels[as_index(effect.component)],
                      effect.attention[as_index(pair.key)], effect.output_change});
    }
    return table;
  });
}

}  // namespace qkscope
