#include "forward/forward.h"

#include <numeric>
#include <optional>
#include <vector>

#include "forward/plan.h"
#include "ops/attention.h"
#include "ops/attention_rows.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/gated_activation.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"

namespace qkscope {
namespace {

// Rows of the MLP that are in flight at a time, unless someone looks at its inside.
constexpr std::int64_t kMlpRows = 512;

struct Activations {
  Tensor residual;    // (rows, d_model)
  Tensor normalized;  // (rows, d_model)
  Tensor update;      // (rows, d_model) what attention or MLP adds
  Tensor q;           // (rows, n_heads, d_head)
  Tensor k;           // (rows, n_kv_heads, d_head)
  Tensor v;           // (rows, n_kv_heads, d_head)
  Tensor z;           // (rows, n_heads, d_head)
  Tensor gate;        // (MLP rows, d_mlp)
  Tensor up;          // (MLP rows, d_mlp)
};

TensorView as_matrix(const Tensor& heads) {
  return heads.view().reshaped({heads.dim(0), heads.dim(1) * heads.dim(2)});
}

class Run {
 public:
  Run(const Model& model, const Batch& batch, Observer& observer)
      : config_(model.config),
        weights_(model.weights),
        batch_(batch),
        observer_(observer),
        plan_(model.config, observer) {}

  void run() {
    if (plan_.empty()) return;
    embed_tokens();
    for (std::int64_t layer = 0; layer < config_.n_layers; ++layer) {
      if (plan_.ends_before({Stage::resid_pre, layer})) return;
      if (config_.layers[static_cast<std::size_t>(layer)].cross_attention) continue;
      observer_.begin_layer(layer);
      run_layer(layer);
    }
    unembed();
  }

 private:
  void embed_tokens() {
    a_.residual = Tensor({batch_.rows(), config_.d_model});
    embed(batch_.ids, weights_.embedding, static_cast<float>(config_.embedding_scale), a_.residual);
    show({Stage::embed}, a_.residual);
    if (plan_.ends_before({Stage::resid_pre, 0})) return;
    allocate();
    for (const auto& rope : config_.ropes) tables_.push_back(rotary_table(rope, batch_.segments));
  }

  void run_layer(std::int64_t layer) {
    const auto& w = weights_.layers[static_cast<std::size_t>(layer)];
    show({Stage::resid_pre, layer}, a_.residual);

    normalize(a_.residual, w.input_norm, a_.normalized);
    show({Stage::ln1_normalized, layer}, a_.normalized);
    queries_and_keys(layer, w);
    if (plan_.ends_before({Stage::attn_scores, layer})) return;
    attend(layer);
    if (plan_.ends_before({Stage::attn_out, layer})) return;
    linear(as_matrix(a_.z), w.o, a_.update);
    if (!w.post_attention_norm.empty()) normalize(a_.update, w.post_attention_norm, a_.update);
    show({Stage::attn_out, layer}, a_.update);
    add_to(a_.residual, a_.update);
    show({Stage::resid_mid, layer}, a_.residual);
    if (plan_.ends_before({Stage::ln2_normalized, layer})) return;

    normalize(a_.residual, w.mlp_norm, a_.normalized);
    show({Stage::ln2_normalized, layer}, a_.normalized);
    if (plan_.ends_before({Stage::mlp_pre, layer})) return;
    mlp(layer, w);
    if (!w.post_mlp_norm.empty()) normalize(a_.update, w.post_mlp_norm, a_.update);
    show({Stage::mlp_out, layer}, a_.update);
    add_to(a_.residual, a_.update);
    show({Stage::resid_post, layer}, a_.residual);
  }

  // q and k pass each stage side by side: projection, norm, rotation.
  void queries_and_keys(std::int64_t layer, const LayerWeights& w) {
    if (plan_.ends_before({Stage::q, layer})) return;
    linear(a_.normalized, w.q, as_matrix(a_.q));
    linear(a_.normalized, w.k, as_matrix(a_.k));
    linear(a_.normalized, w.v, as_matrix(a_.v));
    show({Stage::q, layer}, a_.q);
    show({Stage::k, layer}, a_.k);
    show({Stage::v, layer}, a_.v);
    if (config_.qk_norm) {
      normalize(a_.q, w.q_norm, a_.q);
      normalize(a_.k, w.k_norm, a_.k);
      show({Stage::q_normed, layer}, a_.q);
      show({Stage::k_normed, layer}, a_.k);
    }
    const int rope = config_.layers[static_cast<std::size_t>(layer)].rope;
    if (rope >= 0) {
      const auto& table = tables_[static_cast<std::size_t>(rope)];
      apply_rotary(table, config_.rope_interleaved, a_.q);
      apply_rotary(table, config_.rope_interleaved, a_.k);
    }
    if (config_.query_scaling) scale_queries(a_.q, *config_.query_scaling, batch_.segments);
    show({Stage::rot_q, layer}, a_.q);
    show({Stage::rot_k, layer}, a_.k);
  }

  void attend(std::int64_t layer) {
    const AttentionInput input{.q = a_.q,
                               .k = a_.k,
                               .v = a_.v,
                               .segments = batch_.segments,
                               .scale = static_cast<float>(config_.attention_scale),
                               .window = config_.layers[static_cast<std::size_t>(layer)].window};
    const auto shown = show_scores(layer, input);
    if (plan_.ends_before({Stage::z, layer})) return;
    attention(input, a_.z);
    if (edits({Stage::attn_scores, layer}) || edits({Stage::pattern, layer}))
      attend_edited_rows(input, shown.rows, shown.scores, shown.pattern, a_.z);
    show({Stage::z, layer}, a_.z);
  }

  struct ShownScores {
    std::vector<std::int64_t> rows;
    Tensor scores;   // (n_heads, rows, keys) or empty
    Tensor pattern;  // (n_heads, rows, keys) or empty
  };

  ShownScores show_scores(std::int64_t layer, const AttentionInput& input) {
    const HookPoint scores{Stage::attn_scores, layer};
    const HookPoint pattern{Stage::pattern, layer};
    if (!observer_.wants(scores) && !observer_.wants(pattern)) return {};
    ShownScores shown;
    shown.rows = score_rows();
    const Shape shape{config_.n_heads, static_cast<std::int64_t>(shown.rows.size()),
                      batch_.longest()};
    if (observer_.wants(scores)) shown.scores = Tensor(shape);
    if (observer_.wants(pattern)) shown.pattern = Tensor(shape);
    attention_rows(input, shown.rows, shown.scores, shown.pattern);
    show(scores, shown.scores);
    if (edits(scores)) pattern_of_edited_scores(input, shown.rows, shown.scores, shown.pattern);
    show(pattern, shown.pattern);
    return shown;
  }

  std::vector<std::int64_t> score_rows() const {
    const auto chosen = observer_.score_rows();
    if (!chosen.empty()) return {chosen.begin(), chosen.end()};
    std::vector<std::int64_t> every_row(static_cast<std::size_t>(batch_.rows()));
    std::iota(every_row.begin(), every_row.end(), 0);
    return every_row;
  }

  // The wide activations exist for a chunk of rows at a time, or for all when someone looks at
  // them.
  void mlp(std::int64_t layer, const LayerWeights& w) {
    const bool looked_at = observer_.wants({Stage::mlp_pre, layer}) ||
                           observer_.wants({Stage::mlp_pre_linear, layer}) ||
                           observer_.wants({Stage::mlp_post, layer});
    const auto rows = batch_.rows();
    const auto chunk = looked_at ? rows : std::min(rows, kMlpRows);
    if (a_.gate.empty() || a_.gate.dim(0) < chunk) {
      a_.gate = Tensor({chunk, config_.d_mlp});
      a_.up = Tensor({chunk, config_.d_mlp});
    }
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const auto count = std::min(chunk, rows - begin);
      const auto x = a_.normalized.view().rows(begin, begin + count);
      const auto gate = a_.gate.view().rows(0, count);
      const auto up = a_.up.view().rows(0, count);
      linear(x, w.gate, gate);
      linear(x, w.up, up);
      show({Stage::mlp_pre, layer}, gate);
      show({Stage::mlp_pre_linear, layer}, up);
      gated_activation(config_.activation, gate, up, gate);
      show({Stage::mlp_post, layer}, gate);
      if (!plan_.ends_before({Stage::mlp_out, layer}))
        linear(gate, w.down, a_.update.view().rows(begin, begin + count));
    }
  }

  void unembed() {
    if (plan_.ends_before({Stage::final_normalized})) return;
    normalize(a_.residual, weights_.final_norm, a_.normalized);
    show({Stage::final_normalized}, a_.normalized);
    if (plan_.ends_before({Stage::logits})) return;
    const Tensor logits({batch_.rows(), config_.vocab_size});
    linear(a_.normalized, weights_.head, logits);
    if (config_.logit_softcap > 0.0) soft_cap(logits, config_.logit_softcap);
    show({Stage::logits}, logits);
  }

  void normalize(ConstTensorView x, std::span<const float> weight, TensorView y) const {
    rms_norm(x, weight, config_.norm_eps, y);
  }

  bool edits(HookPoint point) const { return observer_.wants(point) && observer_.edits(point); }

  void show(HookPoint point, TensorView activation) {
    if (edits(point))
      observer_.edit(point, activation);
    else if (observer_.wants(point))
      observer_.see(point, activation);
  }

  void allocate() {
    const auto rows = batch_.rows();
    a_.normalized = Tensor({rows, config_.d_model});
    a_.update = Tensor({rows, config_.d_model});
    a_.q = Tensor({rows, config_.n_heads, config_.d_head});
    a_.k = Tensor({rows, config_.n_kv_heads, config_.d_head});
    a_.v = Tensor({rows, config_.n_kv_heads, config_.d_head});
    a_.z = Tensor({rows, config_.n_heads, config_.d_head});
  }

  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Batch& batch_;
  Observer& observer_;
  Plan plan_;
  Activations a_;
  std::vector<RotaryTable> tables_;
};

}  // namespace

void forward(const Model& model, const Batch& batch, Observer& observer) {
  check_batch(batch, model.config);
  Run(model, batch, observer).run();
}

std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows) {
  const auto heads = 2 * model.n_heads * model.d_head + 2 * model.n_kv_heads * model.d_head;
  std::int64_t floats = rows * (3 * model.d_model + heads);
  for (const auto& rope : model.ropes) floats += rows * rope.dim;
  floats += 2 * std::min(rows, kMlpRows) * model.d_mlp;
  return floats * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace qkscope
