// Tables of attributed scores.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/numerics/products.h"
#include "base/tables/empty_table.h"

namespace qkscope {
namespace {

using State = ScoreAttribution::State;
using Cells = std::vector<Table::Cell>;

// Returns the indices of the `top` contributions with the largest magnitude, or of all if `top` is
// 0, largest first.
std::vector<std::size_t> largest_contributions(const Matrix& all, std::int64_t top) {
  return largest_indices(all.data.size(), top,
                         [&](std::size_t i) { return std::fabs(all.data[i]); });
}

// Distances at which scores are sampled: 0 to 16, then 8 per octave up to `furthest`.
std::vector<std::int64_t> sampled_distances(std::int64_t furthest) {
  std::vector<std::int64_t> distances;
  for (std::int64_t near = 0; near <= std::min<std::int64_t>(furthest, 16); ++near)
    distances.push_back(near);
  for (int step = 1;; ++step) {
    const auto far = static_cast<std::int64_t>(std::lround(16 * std::exp2(step / 8.0)));
    if (far > furthest) return distances;
    distances.push_back(far);
  }
}

// Calls body(names, query vector, key vector) once for the full vectors of a query-key pair, or
// with `components` once for each of the `top` largest products of a query component and a key
// component. The rows of q and k (components, d_head) sum to the full vectors.
template <typename Body>
void for_each_vector_pair(const State& state, std::size_t pair, const Matrix& q, const Matrix& k,
                          bool components, std::int64_t top, Body body) {
  if (!components) return body(Cells(), column_sums(q).data(), column_sums(k).data());
  const auto& head = state.head(pair);
  for (const auto i : largest_contributions(state.contributions(pair), top)) {
    const auto [c, d] = std::lldiv(static_cast<std::int64_t>(i), k.rows);
    body(Cells{head.q.labels[as_index(c)], head.k.labels[as_index(d)]}, q.row(c), k.row(d));
  }
}

// Returns an empty table whose first columns identify a score (head, query, key). `columns` lists
// the remaining columns in the syntax of empty_table().
Table make_query_key_pair_table(const std::string& columns) {
  return empty_table(
      "text model, text text, integer layer, integer head, integer query, integer key, "
      "text query_token, text key_token, real score, real attention, " +
      columns);
}

// Adds a row that starts with the cells identifying the score of `pair`, followed by `more`.
void add_pair_row(Table& table, const State& state, std::size_t pair, const Cells& more) {
  const auto& p = state.pairs[pair];
  Cells cells = {
      state.label, state.text_name,          p.head.layer,           p.head.head, p.query,
      p.key,       state.tokens.at(p.query), state.tokens.at(p.key), p.score,     p.attention};
  cells.insert(cells.end(), more.begin(), more.end());
  table.add(std::move(cells));
}

// Builds a table by calling body(table, pair) for every (query, key) pair of an attribution.
template <typename Body>
Table make_table(const State& state, const std::string& columns, Body body) {
  return translate_exceptions([&] {
    Table table = make_query_key_pair_table(columns);
    for (std::size_t pair = 0; pair < state.pairs.size(); ++pair) body(table, pair);
    return table;
  });
}

constexpr char kComponents[] = "text q_component, text k_component, ";

// Returns the head output before the output projection, shape (d_head).
std::vector<double> weighted_values(const std::vector<double>& attention, const Tensor& values) {
  std::vector<double> sum(as_index(values.dim(1)), 0.0);
  const float* value = values.data<float>();
  for (const double weight : attention)
    for (double& x : sum) x += weight * static_cast<double>(*value++);
  return sum;
}

// Attention of one query after removing one component, and the relative change of the head output.
struct RemovalEffect {
  std::vector<double> attention;  // (keys)
  double output_change = 0;
};

// Returns the effect of removing each component of the query, then of each component of its keys.
std::vector<RemovalEffect> row_effects(const HeadDecomposition& head, std::int64_t query) {
  const auto q = head.scaled_queries(head.q.row_at_position(query));  // (q components, d_head)
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
  std::vector<RemovalEffect> effects(as_index(parts.rows));
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

const std::vector<ScorePair>& ScoreAttribution::pairs() const {
  return state_->pairs;
}

const std::vector<std::string>& ScoreAttribution::q_components(std::size_t pair) const {
  return state_->head(pair).q.labels;
}

const std::vector<std::string>& ScoreAttribution::k_components(std::size_t pair) const {
  return state_->head(pair).k.labels;
}

std::vector<double> ScoreAttribution::matrix(std::size_t pair) const {
  return translate_exceptions([&] {
    if (pair >= state_->pairs.size())
      bad_input("pair: found {}, expected 0 to {}", pair, state_->pairs.size() - 1);
    const auto values = state_->contributions(pair).data;
    return std::vector<double>(values.begin(), values.end());
  });
}

Table ScoreAttribution::table(std::int64_t top) const {
  const auto columns = std::string(kComponents) + "real value, real residual";
  return make_table(*state_, columns, [&](Table& table, std::size_t pair) {
    const auto& head = state_->head(pair);
    double rest = state_->pairs[pair].score;
    const auto add = [&](const std::string& q, const std::string& k, double value) {
      add_pair_row(table, *state_, pair, {q, k, value, state_->pairs[pair].residual});
      rest -= value;
    };
    const auto all = state_->contributions(pair);
    for (const auto i : largest_contributions(all, top))
      add(head.q.labels[i / as_index(all.cols)], head.k.labels[i % as_index(all.cols)],
          all.data[i]);
    if (top > 0) add("others", "others", rest);
  });
}

Table ScoreAttribution::component_table() const {
  const auto columns = "text side, text component, real value";
  return make_table(*state_, columns, [&](Table& table, std::size_t pair) {
    const auto all = state_->contributions(pair);
    const auto add = [&](const std::string& side, const std::vector<std::string>& labels,
                         const std::vector<double>& values) {
      for (std::size_t c = 0; c < values.size(); ++c)
        add_pair_row(table, *state_, pair, {side, labels[c], values[c]});
    };
    add("q", q_components(pair), row_sums(all));
    add("k", k_components(pair), column_sums(all));
  });
}

Table ScoreAttribution::rotary_table(bool components, std::int64_t top) const {
  const auto columns = std::string(components ? kComponents : "") +
                       "integer pair, real frequency, real wavelength, real value";
  return make_table(*state_, columns, [&](Table& table, std::size_t pair) {
    const auto& head = state_->head(pair);
    const auto q = head.scaled_queries(head.q.row_at_position(state_->pairs[pair].query));
    const auto k = head.rotated_keys(head.k.row_at_position(state_->pairs[pair].key));
    const auto add = [&](const Cells& names, const double* query, const double* key) {
      const auto terms = head.split_score_by_rotary_pair(query, key);
      for (std::int64_t p = 0; p < std::ssize(terms); ++p) {
        const bool rotates = p < head.rotary_pairs();
        if (!rotates && 2 * head.rotary_pairs() == q.cols) continue;
        const double frequency = rotates ? head.frequency(p) : 0.0;
        auto cells = names;
        cells.insert(cells.end(),
                     {rotates ? Table::Cell(p) : Table::Cell(kNan), frequency,
                      rotates ? 2 * std::numbers::pi / frequency : kNan, terms[as_index(p)]});
        add_pair_row(table, *state_, pair, cells);
      }
    };
    for_each_vector_pair(*state_, pair, q, k, components, top, add);
  });
}

Table ScoreAttribution::distance_table(bool components, std::int64_t top) const {
  const auto columns = std::string(components ? kComponents : "") + "integer distance, real value";
  const auto distances = sampled_distances(state_->furthest);
  return make_table(*state_, columns, [&](Table& table, std::size_t pair) {
    const auto& head = state_->head(pair);
    const auto i = head.q.row_at_position(state_->pairs[pair].query);
    const auto k = head.k.split(head.k.row_at_position(state_->pairs[pair].key));
    const auto add = [&](const Cells& names, const double* query, const double* key) {
      for (const auto distance : distances) {
        auto cells = names;
        cells.insert(cells.end(), {distance, head.score_at_distance(i, query, key, distance)});
        add_pair_row(table, *state_, pair, cells);
      }
    };
    for_each_vector_pair(*state_, pair, head.q.split(i), k, components, top, add);
  });
}

Table ScoreAttribution::effect_table() const {
  return translate_exceptions([&] {
    const auto& state = *state_;
    if (state.heads.front().v.empty())
      bad_input("effects were not computed; set AttributionOptions::effect");
    Table table = make_query_key_pair_table(
        "text side, text component, real attention_without, real output_change");
    std::map<std::pair<const HeadDecomposition*, std::int64_t>, std::vector<RemovalEffect>> rows;
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
