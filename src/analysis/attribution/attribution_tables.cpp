// Tables of attributed scores.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "qkscope/tables.h"

namespace qkscope {
namespace {

using Type = Table::Type;
using State = ScoreAttribution::State;

constexpr char kOthers[] = "others";

// One entry of the matrix of contributions.
struct Contribution {
  std::int64_t q = 0;
  std::int64_t k = 0;
  double value = 0;
};

// Returns the `top` entries with the largest magnitude, or all if `top` is 0, largest first.
std::vector<Contribution> largest_contributions(const Matrix& all, std::int64_t top) {
  std::vector<std::int64_t> order(all.data.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = top == 0 ? std::ssize(order) : std::min<std::int64_t>(top, std::ssize(order));
  const auto magnitude = [&](std::int64_t i) { return std::fabs(all.data[as_index(i)]); };
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      return magnitude(a) != magnitude(b) ? magnitude(a) > magnitude(b) : a < b;
                    });
  std::vector<Contribution> largest;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = order[as_index(i)];
    largest.push_back({at / all.cols, at % all.cols, all.data[as_index(at)]});
  }
  return largest;
}

// A query and a key that a row of a table is about: the whole vectors, or one component of each.
struct VectorPair {
  std::vector<Table::Cell> components;  // names of the two components, or empty
  Matrix q;                             // (1, d_head)
  Matrix k;                             // (1, d_head)
};

Matrix row_of(const Matrix& rows, std::int64_t row) {
  Matrix one(1, rows.cols);
  std::copy_n(rows.row(row), rows.cols, one.row(0));
  return one;
}

// Returns the whole vectors of a pair, or those of its `top` component pairs. q and k hold one
// component per row.
std::vector<VectorPair> vector_pairs(const State& state, std::size_t pair, const Matrix& q,
                                     const Matrix& k, bool components, std::int64_t top) {
  if (!components) return {{{}, sum_of_rows(q), sum_of_rows(k)}};
  std::vector<VectorPair> pairs;
  const auto& head = state.head(pair);
  for (const auto& [c, d, value] : largest_contributions(state.contributions(pair), top))
    pairs.push_back(
        {{head.q.labels[as_index(c)], head.k.labels[as_index(d)]}, row_of(q, c), row_of(k, d)});
  return pairs;
}

void add_row(Table& table, const State& state, std::size_t pair, const VectorPair& vectors,
             std::vector<Table::Cell> more) {
  more.insert(more.begin(), vectors.components.begin(), vectors.components.end());
  add_pair_row(table, state, pair, more);
}

Table components_table(bool components) {
  Table table = pair_columns();
  if (components) table.column("q_component", Type::text).column("k_component", Type::text);
  return table;
}

}  // namespace

Table pair_columns() {
  Table table;
  table.column("model", Type::text).column("text", Type::text);
  for (const char* name : {"layer", "head", "query", "key"}) table.column(name, Type::integer);
  table.column("query_token", Type::text).column("key_token", Type::text);
  table.column("score", Type::real).column("attention", Type::real);
  return table;
}

void add_pair_row(Table& table, const State& state, std::size_t pair,
                  const std::vector<Table::Cell>& more) {
  const auto& p = state.pairs[pair];
  std::vector<Table::Cell> cells = {
      state.label, state.text_name,          p.head.layer,           p.head.head, p.query,
      p.key,       state.tokens.at(p.query), state.tokens.at(p.key), p.score,     p.attention};
  cells.insert(cells.end(), more.begin(), more.end());
  table.add(std::move(cells));
}

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
  return translate_exceptions([&] {
    Table table = components_table(true);
    table.column("value", Type::real).column("residual", Type::real);
    for (std::size_t pair = 0; pair < state_->pairs.size(); ++pair) {
      const auto& head = state_->head(pair);
      const auto all = state_->contributions(pair);
      double rest = state_->pairs[pair].score;
      const auto add = [&](const std::string& q, const std::string& k, double value) {
        add_pair_row(table, *state_, pair, {q, k, value, state_->pairs[pair].residual});
        rest -= value;
      };
      for (const auto& [c, d, value] : largest_contributions(all, top))
        add(head.q.labels[as_index(c)], head.k.labels[as_index(d)], value);
      if (top > 0) add(kOthers, kOthers, rest);
    }
    return table;
  });
}

Table ScoreAttribution::component_table() const {
  return translate_exceptions([&] {
    Table table = pair_columns();
    table.column("side", Type::text).column("component", Type::text).column("value", Type::real);
    for (std::size_t pair = 0; pair < state_->pairs.size(); ++pair) {
      const auto& head = state_->head(pair);
      const auto all = state_->contributions(pair);
      std::vector<double> of_q(as_index(all.rows), 0.0);
      std::vector<double> of_k(as_index(all.cols), 0.0);
      for (std::int64_t c = 0; c < all.rows; ++c)
        for (std::int64_t d = 0; d < all.cols; ++d) {
          of_q[as_index(c)] += all(c, d);
          of_k[as_index(d)] += all(c, d);
        }
      const auto add = [&](const char* side, const std::vector<std::string>& labels,
                           const std::vector<double>& values) {
        for (std::size_t c = 0; c < values.size(); ++c)
          add_pair_row(table, *state_, pair, {std::string(side), labels[c], values[c]});
      };
      add("q", head.q.labels, of_q);
      add("k", head.k.labels, of_k);
    }
    return table;
  });
}

Table ScoreAttribution::rotary_table(bool components, std::int64_t top) const {
  return translate_exceptions([&] {
    Table table = components_table(components);
    table.column("pair", Type::integer);
    for (const char* name : {"frequency", "wavelength", "value"}) table.column(name, Type::real);
    for (std::size_t pair = 0; pair < state_->pairs.size(); ++pair) {
      const auto& head = state_->head(pair);
      const auto q = head.scaled_queries(head.q.row_of(state_->pairs[pair].query));
      const auto k = head.rotated_keys(head.k.row_of(state_->pairs[pair].key));
      for (const auto& vectors : vector_pairs(*state_, pair, q, k, components, top)) {
        const auto terms = head.by_rotary_pair(vectors.q.row(0), vectors.k.row(0));
        for (std::int64_t p = 0; p < std::ssize(terms); ++p) {
          const bool rotates = p < head.rotary_pairs();
          if (!rotates && 2 * head.rotary_pairs() == vectors.q.cols) continue;
          const double frequency = rotates ? head.frequency(p) : 0.0;
          add_row(table, *state_, pair, vectors,
                  {rotates ? Table::Cell(p) : Table::Cell(kNan), frequency,
                   rotates ? 2 * std::numbers::pi / frequency : kNan, terms[as_index(p)]});
        }
      }
    }
    return table;
  });
}

Table ScoreAttribution::distance_table(bool components, std::int64_t top) const {
  return translate_exceptions([&] {
    Table table = components_table(components);
    table.column("distance", Type::integer).column("value", Type::real);
    const auto distances = sampled_distances(state_->furthest);
    for (std::size_t pair = 0; pair < state_->pairs.size(); ++pair) {
      const auto& head = state_->head(pair);
      const auto i = head.q.row_of(state_->pairs[pair].query);
      const auto q = head.q.split(i);
      const auto k = head.k.split(head.k.row_of(state_->pairs[pair].key));
      for (const auto& vectors : vector_pairs(*state_, pair, q, k, components, top))
        for (const auto distance : distances)
          add_row(
              table, *state_, pair, vectors,
              {distance, head.score_at_distance(i, vectors.q.row(0), vectors.k.row(0), distance)});
    }
    return table;
  });
}

}  // namespace qkscope
