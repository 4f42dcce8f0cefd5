// Composition measured on data: means of the contributions to sampled scores.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/random.h"
#include "qkscope/tables.h"

namespace qkscope {
namespace {

// Mean over texts and its standard error, for several quantities at once.
class TextMeans {
 public:
  void add(const std::vector<double>& mean) {
    sum_.resize(mean.size(), 0.0);
    squares_.resize(mean.size(), 0.0);
    ++texts_;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      // Welford's update: sum_ holds the running mean, squares_ the centred squares.
      const double change = mean[i] - sum_[i];
      sum_[i] += change / static_cast<double>(texts_);
      squares_[i] += change * (mean[i] - sum_[i]);
    }
  }
  std::int64_t texts() const { return texts_; }
  double mean(std::size_t i) const { return sum_[i]; }
  double error(std::size_t i) const {  // NaN for a single text
    if (texts_ < 2) return kNan;
    const auto n = static_cast<double>(texts_);
    return std::sqrt(squares_[i] / (n - 1) / n);
  }

 private:
  std::int64_t texts_ = 0;
  std::vector<double> sum_;
  std::vector<double> squares_;
};

// Sums over the sampled scores of one head.
class HeadComposition {
 public:
  // Adds the scores of one text, given as rows of q and k.
  void add_text(const HeadDecomposition& head,
                const std::vector<std::pair<std::int64_t, std::int64_t>>& rows) {
    q_labels_ = head.q.labels;
    k_labels_ = head.k.labels;
    std::vector<double> text(q_labels_.size() * k_labels_.size(), 0.0);
    sum_.resize(text.size(), 0.0);
    products_.resize(text.size(), 0.0);
    for (const auto& [i, j] : rows) {
      const auto values = head.contributions(i, j).data;
      const double score = std::accumulate(values.begin(), values.end(), 0.0);
      if (samples_ == 0) shift_ = score;
      const double centred = score - shift_;
      ++samples_;
      scores_ += centred;
      squares_ += centred * centred;
      for (std::size_t c = 0; c < text.size(); ++c) {
        text[c] += values[c];
        products_[c] += values[c] * centred;
      }
    }
    for (std::size_t c = 0; c < text.size(); ++c) {
      sum_[c] += text[c];
      text[c] /= static_cast<double>(rows.size());
    }
    pairs_.add(text);
    q_.add(margin(text, true));
    k_.add(margin(text, false));
  }

  // Covariance of each contribution with the score over the variance of the score; sums to 1.
  std::vector<double> explained() const {
    const auto n = static_cast<double>(samples_);
    const double variance = squares_ - scores_ * scores_ / n;
    std::vector<double> shares(sum_.size(), kNan);
    for (std::size_t c = 0; variance > 0 && c < shares.size(); ++c)
      shares[c] = (products_[c] - sum_[c] * scores_ / n) / variance;
    return shares;
  }

  // Sums of values (q components, k components) over the other side.
  std::vector<double> margin(const std::vector<double>& values, bool query) const {
    std::vector<double> sums(query ? q_labels_.size() : k_labels_.size(), 0.0);
    for (std::size_t c = 0; c < values.size(); ++c)
      sums[query ? c / k_labels_.size() : c % k_labels_.size()] += values[c];
    return sums;
  }

  const std::vector<std::string>& labels(bool query) const { return query ? q_labels_ : k_labels_; }
  const TextMeans& pair_means() const { return pairs_; }
  const TextMeans& side_means(bool query) const { return query ? q_ : k_; }
  std::int64_t samples() const { return samples_; }

 private:
  std::vector<std::string> q_labels_;
  std::vector<std::string> k_labels_;
  TextMeans pairs_;  // (q components * k components)
  TextMeans q_;      // (q components)
  TextMeans k_;      // (k components)
  std::int64_t samples_ = 0;
  double shift_ = 0;              // first score, subtracted from all against cancellation
  double scores_ = 0;             // sum of shifted scores
  double squares_ = 0;            // sum of their squares
  std::vector<double> sum_;       // sums of contributions
  std::vector<double> products_;  // sums of contributions times shifted scores
};

// Draws a key by attention, or uniformly among the keys that the query attends to.
std::int64_t draw_key(std::span<const float> attention, bool uniform, Random& random) {
  double total = 0;
  const auto weight = [&](float p) {
    return uniform ? (p > 0 ? 1.0 : 0.0) : static_cast<double>(p);
  };
  for (const float p : attention) total += weight(p);
  double left = random.uniform() * total;
  std::int64_t last = std::ssize(attention) - 1;
  for (std::int64_t key = 0; key < std::ssize(attention); ++key) {
    const double own = weight(attention[as_index(key)]);
    if (own == 0) continue;
    last = key;
    left -= own;
    if (left < 0) return key;
  }
  return last;
}

class Sampler {
 public:
  Sampler(const Model& model, const CompositionOptions& options)
      : model_(model), options_(options), heads_(options.heads.size()) {}

  void add(const std::vector<std::int32_t>& text, std::int64_t samples) {
    const auto pairs = draw(text, samples);
    const auto split = split_heads(model_, text, make_requests(options_.heads, pairs, false),
                                   {.biases = options_.biases});
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const auto& head = split[h].decomposition;
      std::vector<std::pair<std::int64_t, std::int64_t>> rows;
      for (const auto& pair : pairs)
        if (pair.head == h) rows.emplace_back(head.q.row_of(pair.query), head.k.row_of(pair.key));
      heads_[h].add_text(head, rows);
    }
    ++texts_;
  }

  const std::vector<HeadComposition>& heads() const { return heads_; }

 private:
  // All heads share the queries of a text; each head draws its own keys.
  std::vector<ChosenPair> draw(const std::vector<std::int32_t>& text, std::int64_t samples) {
    Random random(options_.seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(texts_));
    std::map<std::int64_t, std::int64_t> times;  // number of draws of each query
    for (std::int64_t i = 0; i < samples; ++i)
      ++times[static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(text.size())))];
    std::vector<std::int64_t> queries;
    for (const auto& [query, count] : times) queries.push_back(query);
    return choose_pairs(model_, text, options_.heads, queries,
                        [&](std::int64_t query, std::span<const float> attention) {
                          std::vector<std::int64_t> keys;
                          for (std::int64_t i = 0; i < times.at(query); ++i)
                            keys.push_back(draw_key(attention, options_.uniform, random));
                          return keys;
                        });
  }

  const Model& model_;
  const CompositionOptions& options_;
  std::vector<HeadComposition> heads_;
  std::int64_t texts_ = 0;
};

Table measure_columns(std::initializer_list<const char*> names) {
  using Type = Table::Type;
  Table table;
  table.column("model", Type::text).column("layer", Type::integer).column("head", Type::integer);
  for (const char* name : names) table.column(name, Type::text);
  for (const char* name : {"mean", "stderr", "explained"}) table.column(name, Type::real);
  return std::move(table.column("texts", Type::integer).column("samples", Type::integer));
}

void add_pair_rows(Table& table, const std::string& label, AttentionHead head,
                   const HeadComposition& found, std::int64_t top) {
  const auto explained = found.explained();
  const auto& means = found.pair_means();
  std::vector<std::size_t> order(explained.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto size = [&](std::size_t c) {
    return std::isnan(explained[c]) ? 0.0 : std::fabs(explained[c]);
  };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  const auto kept = top == 0 ? order.size() : std::min(order.size(), as_index(top));
  const auto columns = found.labels(false).size();
  double mean = 0;
  double share = 0;
  const auto add = [&](const std::string& q, const std::string& k, double m, double error,
                       double part) {
    table.add({label, head.layer, head.head, q, k, m, error, part, means.texts(), found.samples()});
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto c = order[i];
    if (i < kept) {
      add(found.labels(true)[c / columns], found.labels(false)[c % columns], means.mean(c),
          means.error(c), explained[c]);
      continue;
    }
    mean += means.mean(c);
    share += explained[c];
  }
  if (kept < order.size()) add("others", "others", mean, kNan, share);
}

void add_side_rows(Table& table, const std::string& label, AttentionHead head,
                   const HeadComposition& found) {
  for (const bool query : {true, false}) {
    const auto explained = found.margin(found.explained(), query);
    const auto& means = found.side_means(query);
    const auto& labels = found.labels(query);
    for (std::size_t c = 0; c < labels.size(); ++c)
      table.add({label, head.layer, head.head, std::string(query ? "q" : "k"), labels[c],
                 means.mean(c), means.error(c), explained[c], means.texts(), found.samples()});
  }
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
    Sampler sampler(model, options);
    for (std::int64_t i = 0; i < count; ++i) {
      if (texts[as_index(i)].empty()) bad_input("composition: text {} has no tokens", i);
      sampler.add(texts[as_index(i)],
                  options.samples / count + (i < options.samples % count ? 1 : 0));
      if (options.on_text) options.on_text(i + 1);
    }
    const auto label = model_label(options.label, model);
    Composition found{measure_columns({"q_component", "k_component"}),
                      measure_columns({"side", "component"})};
    for (std::size_t h = 0; h < options.heads.size(); ++h) {
      add_pair_rows(found.pairs, label, options.heads[h], sampler.heads()[h], options.top);
      add_side_rows(found.components, label, options.heads[h], sampler.heads()[h]);
    }
    return found;
  });
}

}  // namespace qkscope
