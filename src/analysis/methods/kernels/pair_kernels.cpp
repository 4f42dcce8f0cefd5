#include "analysis/methods/kernels/pair_kernels.h"

#include "base/core/numbers.h"
#include "base/numerics/products.h"

namespace qkscope {
void compute_z_scores(const PairScoreInput& model, std::span<const KeyPair> pairs,
                      std::int64_t column, std::int64_t columns, float* z) {
  const auto dim = model.keys.dim;
  thread_local CacheAlignedVector<float> squares;
  squares.resize(as_index(kTilePairs * dim));
  float* to = squares.data();
  for (const KeyPair& pair : pairs) {
    const float* const x = model.keys.row(pair.first);
    const float* const y = model.keys.row(pair.second);
    for (std::int64_t j = 0; j < dim; ++j) to[j] = (x[j] - y[j]) * (x[j] - y[j]);
    to += dim;
  }
  multiply_narrow(squares.data(), std::ssize(pairs), dim, model.variances.row(0) + column,
                  model.variances.cols, columns, z);
  for (const KeyPair& pair : pairs) {
    const float* const x = model.scores.row(pair.first - model.keys.first) + column;
    const float* const y = model.scores.row(pair.second - model.keys.first) + column;
    for (std::int64_t c = 0; c < columns; ++c) z[c] = limited_z_score(x[c] - y[c], z[c]);
    z += columns;
  }
}

void compute_z_scores_reference(const PairScoreInput& model, std::span<const KeyPair> pairs,
                                std::int64_t column, std::int64_t columns, float* z) {
  for (const KeyPair& pair : pairs) {
    const float* const x = model.keys.row(pair.first);
    const float* const y = model.keys.row(pair.second);
    for (auto c = column; c < column + columns; ++c) {
      double variance = 0;
      for (std::int64_t j = 0; j < model.keys.dim; ++j)
        variance += model.variances(j, c) * std::pow(double{x[j]} - y[j], 2);
      const double mean = double{model.scores(pair.first - model.keys.first, c)} -
                          model.scores(pair.second - model.keys.first, c);
      *z++ = limited_z_score(static_cast<float>(mean), static_cast<float>(variance));
    }
  }
}

}  // namespace qkscope
