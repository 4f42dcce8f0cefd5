#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "capture/stats_run/stats_pass.h"

namespace qkscope {
namespace {

constexpr std::int64_t kMostFloats = std::int64_t{1} << 24;  // largest size of the pattern buffer

}  // namespace

std::vector<std::int64_t> evenly_spaced_rows(std::int64_t length, std::int64_t count) {
  count = std::min(count, length);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 1; i <= count; ++i) rows.push_back(i * length / count - 1);
  return rows;
}

std::vector<double> measure_row_concentration(std::span<const float> pattern) {
  std::vector<float> p(pattern.begin(), pattern.end());
  std::ranges::sort(p, std::greater<>());
  std::vector<double> held(p.size());  // cumulative mass of the largest keys
  std::inclusive_scan(p.begin(), p.end(), held.begin(), std::plus<>(), 0.0);
  std::vector<double> values;
  for (const double share : kKeyShare) {
    const auto enough = std::ranges::lower_bound(held, share * held.back());
    values.push_back(static_cast<double>(enough - held.begin()) + 1.0);
  }
  for (const auto top : kTopKey) values.push_back(held[std::min(as_index(top), held.size()) - 1]);
  return values;
}

std::vector<std::vector<double>> measure_attention_concentration(Backend& backend,
                                                                 const Sequence& sequence,
                                                                 std::int64_t longest,
                                                                 std::int64_t count) {
  const auto heads = backend.config().n_heads;
  const auto positions = evenly_spaced_rows(sequence.length, count);
  const auto at_once = std::max<std::int64_t>(1, kMostFloats / (heads * longest));
  std::vector<std::vector<double>> means(as_index(heads),
                                         std::vector<double>(kKeyShares + kTopKeys));
  for (std::int64_t begin = 0; begin < std::ssize(positions); begin += at_once) {
    std::vector<std::int64_t> rows;
    for (auto i = begin; i < std::min(begin + at_once, std::ssize(positions)); ++i)
      rows.push_back(sequence.begin + positions[as_index(i)]);
    Tensor pattern({heads, std::ssize(rows), longest});
    backend.compute_row_scores({.rows = rows, .scores = {}, .pattern = pattern});
    parallel_for(heads, [&](std::int64_t head) {
      for (std::int64_t r = 0; r < std::ssize(rows); ++r) {
        const float* p = pattern.data<float>() + (head * std::ssize(rows) + r) * longest;
        const auto values =
            measure_row_concentration({p, as_index(rows[as_index(r)] - sequence.begin + 1)});
        auto& mean = means[as_index(head)];
        for (std::size_t v = 0; v < values.size(); ++v)
          mean[v] += values[v] / static_cast<double>(positions.size());
      }
    });
  }
  return means;
}

DuoAttentionScorer::DuoAttentionScorer(const ModelConfig& model, std::int64_t layer,
                                       std::int64_t max_length)
    : scale_(model.score_scale(layer)), interleaved_(model.rope_interleaved) {
  const auto* rope = model.rope(layer);
  if (rope == nullptr) return;
  rotary_ = rope->dim;
  begin_ = rope->begin;
  const auto frequencies = rope_frequencies(*rope, max_length);
  const auto factor = static_cast<double>(frequencies.attention_factor);  // of q and of k
  for (std::int64_t distance = 0; distance < kPositions; ++distance)
    for (const auto inverse : frequencies.inverse) {
      const double angle =
          static_cast<double>(rope->reversed ? -inverse : inverse) * static_cast<double>(distance);
      cos_.push_back(factor * factor * std::cos(angle));
      sin_.push_back(factor * factor * std::sin(angle));
    }
}

double DuoAttentionScorer::compute(std::span<const double> query,
                                   std::span<const double> key) const {
  const auto half = as_index(rotary_ / 2);
  // RoPE: a rotary pair of frequency w adds along * cos(w d) + across * sin(w d) to q.k at distance
  // d, where along is the dot product and across the cross product of its query and key parts.
  std::vector<double> along(half);
  std::vector<double> across(half);
  for (std::size_t i = 0; i < half; ++i) {
    const auto a = as_index(begin_) + (interleaved_ ? 2 * i : i);
    const auto b = a + (interleaved_ ? 1 : half);
    along[i] = query[a] * key[a] + query[b] * key[b];
    across[i] = query[a] * key[b] - query[b] * key[a];
  }
  double still = 0;
  for (std::size_t c = 0; c < query.size(); ++c)
    if (c < as_index(begin_) || c >= as_index(begin_ + rotary_)) still += query[c] * key[c];
  std::vector<double> scores(as_index(kPositions));  // score by distance
  for (std::size_t distance = 0; distance < scores.size(); ++distance) {
    double score = still;
    for (std::size_t i = 0; i < half; ++i)
      score += along[i] * cos_[distance * half + i] + across[i] * sin_[distance * half + i];
    scores[distance] = scale_ * score;
  }
  const double highest = *std::ranges::max_element(scores);
  double sum = 0;
  double area = 0;
  for (std::size_t distance = 0; distance < scores.size(); ++distance) {
    const double weight = std::exp(scores[distance] - highest);
    sum += weight;
    area += weight * static_cast<double>(distance + 1);  // part of distance + 1 cumulative sums
  }
  return area / sum / static_cast<double>(kPositions);
}

}  // namespace qkscope
