// Tables of score attribution, and of head composition (mean contributions to sampled scores).
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/thread_pool.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"
#include "base/tables/empty_table.h"

namespace qkscope {
namespace {

using State = ScoreAttribution::State;
using Cells = std::vector<Table::Cell>;

// Returns the indices of the `top` contributions (0: all) in descending order of magnitude.
std::vector<std::size_t> largest_contributions(const Matrix& all, std::int64_t top) {
  return indices_of_largest(all.data.size(), top,
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

// Calls body(names, query vector, key vector) for the full vectors of a query-key pair. If
// `components` is set, calls it for the `top` largest products of a query and a key component
// instead. The rows of q and k (components, d_head) sum to the full vectors.
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

// Adds a row: the cells that identify the (query, key) pair, followed by the cells in `more`.
void add_pair_row(Table& table, const State& state, std::size_t pair, const Cells& more) {
  const auto& p = state.pairs[pair];
  Cells cells = {
      state.label, state.text_name,          p.head.layer,           p.head.head, p.query,
      p.key,       state.tokens.at(p.query), state.tokens.at(p.key), p.score,     p.attention};
  cells.insert(cells.end(), more.begin(), more.end());
  table.add(std::move(cells));
}

// Builds a table to which body(table, pair) adds the rows of each (query, key) pair. `columns`, in
// the syntax of empty_table(), follow the columns that identify the pair.
template <typename Body>
Table make_pair_table(const State& state, const std::string& columns, Body body) {
  return translate_exceptions([&] {
    Table table = empty_table(
        "text model, text text, integer layer, integer head, integer query, integer key, "
        "text query_token, text key_token, real score, real attention, " +
        columns);
    for (std::size_t pair = 0; pair < state.pairs.size(); ++pair) body(table, pair);
    return table;
  });
}

constexpr char kComponents[] = "text q_component, text k_component, ";

// Returns the head output before the output projection, shape (d_head).
std::vector<double> attention_output(const std::vector<double>& attention, const Tensor& values) {
  std::vector<double> sum(as_index(values.dim(1)), 0.0);
  const float* value = values.data<float>();
  for (const double weight : attention)
    for (double& x : sum) x += weight * static_cast<double>(*value++);
  return sum;
}

// Attention of one query after ablating one component, and the relative change of the head output.
struct AblationEffect {
  std::vector<double> attention;  // (keys)
  double output_change = 0;
};

// Returns the effects of ablating each component of the query, then each component of the keys.
std::vector<AblationEffect> ablation_effects(const HeadDecomposition& head, std::int64_t query) {
  const auto q = head.scaled_query_components(head.q.row_at_position(query));
  const auto whole = column_sums(q);
  Matrix parts(q.rows + head.k.component_count(), query + 1);  // contributions to the scores
  std::vector<double> scores(as_index(query) + 1);
  parallel_for(query + 1, [&](std::int64_t j) {
    const auto k = head.rotated_key_components(j);  // all keys from 0 on were collected
    auto column = multiply(q, column_sums(k));
    scores[as_index(j)] = sum(column);
    const auto of_k = multiply(k, whole);
    column.insert(column.end(), of_k.begin(), of_k.end());
    for (std::int64_t c = 0; c < parts.rows; ++c) parts(c, j) = column[as_index(c)];
  });
  const auto before = attention_output(head.apply_softmax(scores), head.v);
  std::vector<AblationEffect> effects(as_index(parts.rows));
  parallel_for(parts.rows, [&](std::int64_t c) {
    auto without = scores;
    add_scaled(-1, {parts.row(c), without.size()}, without);
    auto& effect = effects[as_index(c)];
    effect.attention = head.apply_softmax(std::move(without));
    auto change = attention_output(effect.attention, head.v);
    add_scaled(-1, before, change);
    effect.output_change = norm(change) / norm(before);
  });
  return effects;
}

// Mean contributions to the sampled scores of one head. Arrays of shape (quantities) have an entry
// for each pair of components, then for each query component, then for each key component.
class HeadComposition {
 public:
  void add_text(const HeadDecomposition& head, const std::vector<ScorePair>& pairs) {
    if (names_.empty()) {
      for (const auto& q : head.q.labels)
        for (const auto& k : head.k.labels) names_.emplace_back(q, k);
      pairs_ = names_.size();
      for (const auto& q : head.q.labels) names_.emplace_back("q", q);
      for (const auto& k : head.k.labels) names_.emplace_back("k", k);
      for (auto* list : {&means_, &deviations_, &sums_, &products_}) list->resize(names_.size());
    }
    std::vector<double> text(names_.size(), 0.0);  // sums over the text
    std::int64_t samples = 0;
    for (const auto& pair : pairs) {
      if (pair.head != head.head()) continue;
      const auto matrix =
          head.contributions(head.q.row_at_position(pair.query), head.k.row_at_position(pair.key));
      std::vector<double> values(matrix.data.begin(), matrix.data.end());
      for (const auto& side : {row_sums(matrix), column_sums(matrix)})
        values.insert(values.end(), side.begin(), side.end());
      const double score = std::accumulate(matrix.data.begin(), matrix.data.end(), 0.0);
      if (samples_ == 0 && samples == 0) shift_ = score;
      ++samples;
      scores_ += score - shift_;
      squares_ += (score - shift_) * (score - shift_);
      add_scaled(1, values, text);
      add_scaled(score - shift_, values, products_);
    }
    samples_ += samples;
    ++texts_;
    add_scaled(1, text, sums_);
    for (std::size_t i = 0; i < text.size(); ++i) {  // Welford's update
      const double mean = text[i] / static_cast<double>(samples);
      const double change = mean - means_[i];
      means_[i] += change / static_cast<double>(texts_);
      deviations_[i] += change * (mean - means_[i]);
    }
  }

  // Adds a row for every component, and for every component pair if `top` is 0. Otherwise adds the
  // `top` pairs that explain the most variance, and one row with the sum of the other pairs.
  void add_rows(Composition& tables, const std::string& label, AttentionHead head,
                std::int64_t top) const {
    for (auto i = pairs_; i < names_.size(); ++i) add_row(tables.components, label, head, i);
    const auto order = indices_of_largest(pairs_, 0, [&](std::size_t i) {
      return std::isnan(explained_variance(i)) ? 0.0 : std::fabs(explained_variance(i));
    });
    const auto kept = top == 0 ? pairs_ : std::min(pairs_, as_index(top));
    for (const auto i : std::span(order).first(kept)) add_row(tables.pairs, label, head, i);
    if (kept == pairs_) return;
    double mean = 0;
    double share = 0;
    for (const auto i : std::span(order).subspan(kept)) {
      mean += means_[i];
      share += explained_variance(i);
    }
    tables.pairs.add(
        {label, head.layer, head.head, "others", "others", mean, kNan, share, texts_, samples_});
  }

 private:
  // Share of the score variance explained by a contribution: cov(contribution, score) / var(score).
  double explained_variance(std::size_t i) const {
    const auto n = static_cast<double>(samples_);
    const double variance = squares_ - scores_ * scores_ / n;
    return variance > 0 ? (products_[i] - sums_[i] * scores_ / n) / variance : kNan;
  }

  void add_row(Table& table, const std::string& label, AttentionHead head, std::size_t i) const {
    const auto n = static_cast<double>(texts_);
    table.add({label, head.layer, head.head, names_[i].first, names_[i].second, means_[i],
               texts_ > 1 ? std::sqrt(deviations_[i] / (n - 1) / n) : kNan, explained_variance(i),
               texts_, samples_});
  }

  std::vector<std::pair<std::string, std::string>> names_;  // (quantities)
  std::size_t pairs_ = 0;                                   // quantities that are component pairs
  std::int64_t texts_ = 0;
  std::int64_t samples_ = 0;
  double shift_ = 0;                // first score, subtracted from all scores to avoid cancellation
  double scores_ = 0;               // sum of shifted scores
  double squares_ = 0;              // sum of squared shifted scores
  std::vector<double> means_;       // (quantities) mean over texts of the per-text means
  std::vector<double> deviations_;  // (quantities) sum of squared deviations of per-text means
  std::vector<double> sums_;        // (quantities) over samples
  std::vector<double> products_;    // (quantities) sums of contributions times shifted scores
};

// Draws a key with probability equal to its attention, or uniformly among the attended keys.
std::int64_t sample_key(std::span<const float> attention, bool uniform, Random& random) {
  std::vector<double> sums;  // (keys): cumulative sum of the weights
  for (double sum = 0; const float p : attention)
    sums.push_back(sum += uniform ? (p > 0 ? 1.0 : 0.0) : static_cast<double>(p));
  const auto drawn = std::ranges::upper_bound(sums, random.uniform() * sums.back());
  return std::min(drawn - sums.begin(), std::ssize(sums) - 1);
}

// Samples (query, key) pairs of one text. Heads share the queries, but each draws its own keys.
std::vector<ScorePair> sample_score_pairs(const Model& model, const std::vector<std::int32_t>& ids,
                                          const CompositionOptions& options, std::int64_t text,
                                          std::int64_t samples) {
  Random random(options.seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(text));
  std::map<std::int64_t, std::int64_t> times;  // number of draws of each query
  for (std::int64_t i = 0; i < samples; ++i)
    ++times[static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(ids.size())))];
  return choose_pairs(model, ids, options.heads,
                      to_vector(times, [](const auto& drawn) { return drawn.first; }),
                      [&](std::int64_t query, std::span<const float> attention) {
                        std::vector<std::int64_t> keys(as_index(times.at(query)));
                        for (auto& key : keys) key = sample_key(attention, options.uniform, random);
                        return keys;
                      });
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
      reject("pair: found {}, expected 0 to {}", pair, state_->pairs.size() - 1);
    const auto values = state_->contributions(pair).data;
    return std::vector<double>(values.begin(), values.end());
  });
}

Table ScoreAttribution::table(std::int64_t top) const {
  const auto columns = std::string(kComponents) + "real value, real residual";
  return make_pair_table(*state_, columns, [&](Table& table, std::size_t pair) {
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
  return make_pair_table(*state_, columns, [&](Table& table, std::size_t pair) {
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
  return make_pair_table(*state_, columns, [&](Table& table, std::size_t pair) {
    const auto& head = state_->head(pair);
    const auto q = head.scaled_query_components(head.q.row_at_position(state_->pairs[pair].query));
    const auto k = head.rotated_key_components(head.k.row_at_position(state_->pairs[pair].key));
    const auto add = [&](const Cells& names, const double* query, const double* key) {
      const auto terms = head.split_score_by_rotary_pair(query, key);
      for (std::int64_t p = 0; p < std::ssize(terms); ++p) {
        const bool rotates = p < head.rotary_pair_count();
        if (!rotates && 2 * head.rotary_pair_count() == q.cols) continue;
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
  return make_pair_table(*state_, columns, [&](Table& table, std::size_t pair) {
    const auto& head = state_->head(pair);
    const auto i = head.q.row_at_position(state_->pairs[pair].query);
    const auto k = head.k.components_of_row(head.k.row_at_position(state_->pairs[pair].key));
    const auto add = [&](const Cells& names, const double* query, const double* key) {
      for (const auto distance : distances) {
        auto cells = names;
        cells.insert(cells.end(), {distance, head.score_at_distance(i, query, key, distance)});
        add_pair_row(table, *state_, pair, cells);
      }
    };
    for_each_vector_pair(*state_, pair, head.q.components_of_row(i), k, components, top, add);
  });
}

Table ScoreAttribution::effect_table() const {
  return translate_exceptions([&] {
    if (state_->heads.front().v.empty())
      reject("effects were not computed; set AttributionOptions::effect");
    std::map<std::pair<const HeadDecomposition*, std::int64_t>, std::vector<AblationEffect>> rows;
    const auto columns = "text side, text component, real attention_without, real output_change";
    return make_pair_table(*state_, columns, [&](Table& table, std::size_t pair) {
      const auto query = state_->pairs[pair].query;
      const auto& head = state_->head(pair);
      auto& effects = rows[{&head, query}];
      if (effects.empty()) effects = ablation_effects(head, query);
      for (std::size_t c = 0; c < effects.size(); ++c) {
        const bool of_q = c < head.q.labels.size();
        add_pair_row(
            table, *state_, pair,
            {std::string(of_q ? "q" : "k"),
             of_q ? head.q.labels[c] : head.k.labels[c - head.q.labels.size()],
             effects[c].attention[as_index(state_->pairs[pair].key)], effects[c].output_change});
      }
    });
  });
}

Composition composition(const Model& model, const std::vector<std::vector<std::int32_t>>& texts,
                        const CompositionOptions& options) {
  return translate_exceptions([&] {
    check_head_list(options.heads, model.config());
    if (texts.empty()) reject("composition: there is no text");
    const auto count = std::ssize(texts);
    if (options.samples < count)
      reject("composition: found {} samples for {} texts, expected at least one per text",
             options.samples, count);
    std::vector<HeadComposition> heads(options.heads.size());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& ids = texts[as_index(i)];
      if (ids.empty()) reject("composition: text {} has no tokens", i);
      const auto samples = options.samples / count + (i < options.samples % count ? 1 : 0);
      const auto pairs = sample_score_pairs(model, ids, options, i, samples);
      const auto split =
          decompose_heads(model, ids, options.heads, pairs, {.biases = options.biases});
      for (std::size_t h = 0; h < heads.size(); ++h) heads[h].add_text(split[h], pairs);
      if (options.on_text) options.on_text(i + 1);
    }
    const auto label = model_label(options.label, model);
    const auto columns = [](const std::string& names) {
      return empty_table("text model, integer layer, integer head, " + names +
                         ", real mean, real stderr, real explained, integer texts, integer "
                         "samples");
    };
    Composition found{columns("text q_component, text k_component"),
                      columns("text side, text component")};
    for (std::size_t h = 0; h < heads.size(); ++h)
      heads[h].add_rows(found, label, options.heads[h], options.top);
    return found;
  });
}

}  // namespace qkscope
