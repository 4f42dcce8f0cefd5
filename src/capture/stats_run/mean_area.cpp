#include "capture/stats_run/mean_area.h"

#include <algorithm>
#include <cmath>

#include "base/core/index.h"

namespace qkscope {

MeanArea::MeanArea(const ModelConfig& model, std::int64_t layer, std::int64_t max_length)
    : scale_(model.score_scale(layer)), interleaved_(model.rope_interleaved) {
  const auto* rope = model.rope(layer);
  if (rope == nullptr) return;
  rotary_ = rope->dim;
  const auto frequencies = rope_frequencies(*rope, max_length);
  const double factor = static_cast<double>(frequencies.attention_factor) *
                        static_cast<double>(frequencies.attention_factor);  // applies to q and k
  for (std::int64_t distance = 0; distance < kPositions; ++distance)
    for (const auto inverse : frequencies.inverse) {
      const double angle = static_cast<double>(inverse) * static_cast<double>(distance);
      cos_.push_back(factor * std::cos(angle));
      sin_.push_back(factor * std::sin(angle));
    }
}

double MeanArea::of(std::span<const double> query, std::span<const double> key) const {
  const auto half = as_index(rotary_ / 2);
  // The dot product of q rotated by position m and k rotated by n is
  // along * cos(m - n) + across * sin(m - n) per rotary pair.
  std::vector<double> along(half);
  std::vector<double> across(half);
  for (std::size_t i = 0; i < half; ++i) {
    const auto a = interleaved_ ? 2 * i : i;
    const auto b = interleaved_ ? 2 * i + 1 : i + half;
    along[i] = query[a] * key[a] + query[b] * key[b];
    across[i] = query[a] * key[b] - query[b] * key[a];
  }
  double still = 0;
  for (auto c = as_index(rotary_); c < query.size(); ++c) still += query[c] * key[c];
  std::vector<double> scores(as_index(kPositions));  // by distance
  for (std::size_t distance = 0; distance < scores.size(); ++distance) {
    double score = still;
    for (std::size_t i = 0; i < half; ++i)
      score += along[i] * cos_[distance * half + i] + across[i] * sin_[distance * half + i];
    scores[distance] = scale_ * score;
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  double area = 0;
  for (std::size_t distance = 0; distance < scores.size(); ++distance) {
    const double weight = std::exp(scores[distance] - highest);
    sum += weight;
    area += weight * static_cast<double>(distance + 1);  // counts in all later cumulative sums
  }
  return area / sum / static_cast<double>(kPositions);
}

}  // namespace qkscope
