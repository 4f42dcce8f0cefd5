// Ranks of the query-key circuit W_Q^T W_K of a checkpoint.
#include <set>

#include "analysis/methods/geometry.h"
#include "analysis/results/head_geometry.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/numerics/products.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/model_config.h"
#include "qkscope/hub.h"

namespace qkscope {
namespace {

// Returns X X^T (d_head, d_head) of each head, where X are the head's rows of the projection, times
// the weight of the norm before it and of the q or k norm after it.
std::vector<Matrix> head_gram_matrices(const Linear& projection, const NormWeights& input_norm,
                                       const NormWeights& head_norm, std::int64_t d_head) {
  const Tensor weight = to_float32(projection.weight);
  const auto columns = projection.weight.in();
  std::vector<Matrix> grams(as_index(projection.weight.out() / d_head));
  parallel_for(std::ssize(grams), [&](std::int64_t head) {
    Matrix rows(d_head, columns);
    for (std::int64_t i = 0; i < d_head; ++i) {
      const auto row = head * d_head + i;
      const float* from = weight.data<float>() + row * columns;
      const auto& norm = head_norm.weight;
      const double scale = norm.empty() ? 1 : norm[as_index(row) % norm.size()];
      for (std::int64_t j = 0; j < columns; ++j)
        rows(i, j) = scale * from[j] * (input_norm.empty() ? 1 : input_norm.weight[as_index(j)]);
    }
    grams[as_index(head)] = multiply_transposed(rows, rows);
  });
  return grams;
}

}  // namespace

void add_weight_ranks(const std::string& model, bool quiet, AnalysisRun& run) {
  const auto at = path_exists(model) ? std::string::npos : model.find('@');
  const LoadedCheckpoint loaded = load_model(fetch_checkpoint(
      model.substr(0, at), at == std::string::npos ? "" : model.substr(at + 1), {.quiet = quiet}));
  if (loaded.config.has_latent_attention())
    bad_input(
        "--weights {}: q and k of {} models are projections of normalised latents, so that W_Q and "
        "W_K are no single matrices; leave --weights out",
        model, loaded.config.family);
  require_equal_heads(loaded.config, "--weights " + model);
  std::set<int> layers;
  for (const auto& head : run.heads) {
    if (head.query.layer >= loaded.config.n_layers || head.query.head >= loaded.config.n_heads ||
        (head.error.empty() && head.dim != loaded.config.d_head))
      bad_input(
          "--weights {}: {} layers with {} query heads of {} numbers, but the vectors are of layer "
          "{}, head {} with {} numbers; name the model that was run",
          model, loaded.config.n_layers, loaded.config.n_heads, loaded.config.d_head,
          head.query.layer, head.query.head, head.dim);
    layers.insert(head.query.layer);
  }
  for (const int layer : layers) {
    const auto& weights = loaded.weights.layers[static_cast<std::size_t>(layer)];
    const auto queries =
        head_gram_matrices(weights.q, weights.input_norm, weights.q_norm, loaded.config.d_head);
    const auto keys =
        head_gram_matrices(weights.k, weights.input_norm, weights.k_norm, loaded.config.d_head);
    parallel_for(std::ssize(run.heads), [&](std::int64_t i) {
      HeadReport& head = run.heads[as_index(i)];
      if (head.query.layer != layer || !head.geometry) return;
      // Squared singular values of X^T Y are the eigenvalues of (X X^T)(Y Y^T).
      const auto ranks = ranks_of_spectrum(
          product_spectrum(queries[as_index(head.query.head)], keys[as_index(head.k_head)]));
      head.geometry->set("weight_rank_90", ranks.rank_90);
      head.geometry->set("weight_rank_participation", ranks.participation);
    });
  }
}

}  // namespace qkscope
