// Measures head composition on texts: mean contributions of components to sampled scores.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/numerics/random.h"
#include "base/tables/empty_table.h"

namespace qkscope {
namespace {

// Mean contributions to the sampled scores of one head. The values are ordered: all component
// pairs, then all components of the query, then all components of the key.
class HeadComposition {
 public:
  // Adds the sampled scores of one text.
  void add_text(const HeadDecomposition& head, const std::vector<ScorePair>& pairs) {
    if (names_.empty()) set_names(head);
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

  // Adds a row for every component pair, or for the `top` pairs that explain the most variance plus
  // one row with the sum of the remaining pairs.
  void add_pairs(Table& table, const std::string& label, AttentionHead head,
                 std::int64_t top) const {
    const auto order = largest_indices(pairs_, 0, [&](std::size_t i) {
      return std::isnan(explained(i)) ? 0.0 : std::fabs(explained(i));
    });
    const auto kept = top == 0 ? pairs_ : std::min(pairs_, as_index(top));
    for (const auto i : std::span(order).first(kept)) add_row(table, label, head, i);
    if (kept == pairs_) return;
    double mean = 0;
    double share = 0;
    for (const auto i : std::span(order).subspan(kept)) {
      mean += means_[i];
      share += explained(i);
    }
    table.add(
        {label, head.layer, head.head, "others", "others", mean, kNan, share, texts_, samples_});
  }

  void add_component_rows(Table& table, const std::string& label, AttentionHead head) const {
    for (auto i = pairs_; i < names_.size(); ++i) add_row(table, label, head, i);
  }

 private:
  void set_names(const HeadDecomposition& head) {
    for (const auto& q : head.q.labels)
      for (const auto& k : head.k.labels) names_.emplace_back(q, k);
    pairs_ = names_.size();
    for (const auto& q : head.q.labels) names_.emplace_back("q", q);
    for (const auto& k : head.k.labels) names_.emplace_back("k", k);
    for (auto* list : {&means_, &deviations_, &sums_, &products_}) list->resize(names_.size());
  }

  // Share of the score variance explained by a contribution: cov(contribution, score) / var(score).
  double explained(std::size_t i) const {
    const auto n = static_cast<double>(samples_);
    const double variance = squares_ - scores_ * scores_ / n;
    return variance > 0 ? (products_[i] - sums_[i] * scores_ / n) / variance : kNan;
  }

  void add_row(Table& table, const std::string& label, AttentionHead head, std::size_t i) const {
    const auto n = static_cast<double>(texts_);
    table.add({label, head.layer, head.head, names_[i].first, names_[i].second, means_[i],
               texts_ > 1 ? std::sqrt(deviations_[i] / (n - 1) / n) : kNan, explained(i), texts_,
               samples_});
  }

  std::vector<std::pair<std::string, std::string>> names_;  // (quantities)
  std::size_t pairs_ = 0;                                   // quantities that are component pairs
  std::int64_t texts_ = 0;
  std::int64_t samples_ = 0;
  double shift_ = 0;                // first score, subtracted from all against cancellation
  double scores_ = 0;               // sum of shifted scores
  double squares_ = 0;              // sum of their squares
  std::vector<double> means_;       // (quantities) mean over texts of the means of texts
  std::vector<double> deviations_;  // (quantities) their centred squares
  std::vector<double> sums_;        // (quantities) over samples
  std::vector<double> products_;    // (quantities) sums of contributions times shifted scores
};

// Draws a key with probability equal to its attention, or uniformly among the attended keys.
std::int64_t sample_key(std::span<const float> attention, bool uniform, Random& random) {
  std::vector<double> sums;  // (keys) of the weights up to each key
  for (double sum = 0; const float p : attention)
    sums.push_back(sum += uniform ? (p > 0 ? 1.0 : 0.0) : static_cast<double>(p));
  const auto drawn = std::ranges::upper_bound(sums, random.uniform() * sums.back());
  return std::min(drawn - sums.begin(), std::ssize(sums) - 1);
}

// Samples (query, key) pairs from text number `text`. All heads share the sampled queries; each
// head draws its own keys.
std::vector<ScorePair> sample_score_pairs(const Model& model, const std::vector<std::int32_t>& ids,
                                          const CompositionOptions& options, std::int64_t text,
                                          std::int64_t samples) {
  Random random(options.seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(text));
  std::map<std::int64_t, std::int64_t> times;  // number of draws of each query
  for (std::int64_t i = 0; i < samples; ++i)
    ++times[static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(ids.size())))];
  return choose_pairs(model, ids, options.heads,
                      project(times, [](const auto& drawn) { return drawn.first; }),
                      [&](std::int64_t query, std::span<const float> attention) {
                        std::vector<std::int64_t> keys(as_index(times.at(query)));
                        for (auto& key : keys) key = sample_key(attention, options.uniform, random);
                        return keys;
                      });
}

}  // namespace

Composition composition(const Model& model, const std::vector<std::vector<std::int32_t>>& texts,
                        const CompositionOptions& options) {
  return translate_exceptions([&] {
    check_heads(options.heads, model.config());
    if (texts.empty()) bad_input("composition: there is no text");
    const auto count = std::ssize(texts);
    if (options.samples < count)
      bad_input("composition: found {} samples for {} texts, expected at least one per text",
                options.samples, count);
    std::vector<HeadComposition> heads(options.heads.size());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& ids = texts[as_index(i)];
      if (ids.empty()) bad_input("composition: text {} has no tokens", i);
      const auto samples = options.samples / count + (i < options.samples % count ? 1 : 0);
      const auto pairs = sample_score_pairs(model, ids, options, i, samples);
      const auto split = split_heads(model, ids, options.heads, pairs, {.biases = options.biases});
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
    for (std::size_t h = 0; h < heads.size(); ++h) {
      heads[h].add_pairs(found.pairs, label, options.heads[h], options.top);
      heads[h].add_component_rows(found.components, label, options.heads[h]);
    }
    return found;
  });
}

}  // namespace qkscope
