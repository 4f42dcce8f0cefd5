#include "analysis/methods/kernels/pair_kernels.h"

#include <cmath>
#include <vector>

#include "base/numerics/products.h"

namespace qkscope {

void z_scores(const PairModel& model, std::span<const Pair> pairs, std::span<const PairTile> tiles,
              float* z) {
  const auto dim = model.keys.dim;
  CacheAlignedVector<float> squares(static_cast<std::size_t>(kTilePairs * dim));
  for (const PairTile& tile : tiles) {
    const Pair* const first = pairs.data() + tile.first;
    float* const out = z + tile.offset;
    for (std::int64_t p = 0; p < tile.count; ++p) {
      const float* const x = model.keys.row(first[p].first);
      const float* const y = model.keys.row(first[p].second);
      float* const to = squares.data() + p * dim;
      for (std::int64_t j = 0; j < dim; ++j) to[j] = (x[j] - y[j]) * (x[j] - y[j]);
    }
    multiply_narrow(squares.data(), tile.count, dim, model.variances.row(0) + tile.column,
                    model.variances.cols, tile.stride, out);
    for (std::int64_t p = 0; p < tile.count; ++p) {
      const float* const x = model.scores.row(first[p].first - model.keys.first) + tile.column;
      const float* const y = model.scores.row(first[p].second - model.keys.first) + tile.column;
      float* const row = out + p * tile.stride;
      for (std::int64_t c = 0; c < tile.stride; ++c)
        row[c] = row[c] > 0 ? (x[c] - y[c]) / std::sqrt(row[c]) : 0;
    }
  }
}

void z_scores_reference(const PairModel& model, std::span<const Pair> pairs,
                        std::span<const PairTile> tiles, float* z) {
  for (const PairTile& tile : tiles)
    for (std::int64_t p = 0; p < tile.count; ++p) {
      const Pair& pair = pairs[static_cast<std::size_t>(tile.first + p)];
      const float* const x = model.keys.row(pair.first);
      const float* const y = model.keys.row(pair.second);
      for (std::int64_t c = 0; c < tile.stride; ++c) {
        const auto column = tile.column + c;
        double variance = 0;
        for (std::int64_t j = 0; j < model.keys.dim; ++j)
          variance += model.variances(j, column) * std::pow(double{x[j]} - y[j], 2);
        const double mean = double{model.scores(pair.first - model.keys.first, column)} -
                            model.scores(pair.second - model.keys.first, column);
        z[tile.offset + p * tile.stride + c] =
            variance > 0 ? static_cast<float>(mean / std::sqrt(variance)) : 0;
      }
    }
}

}  // namespace qkscope
