// What a device does in the forward pass: the steps of the one layer loop (forward/forward.cpp), on
// activations that live in the backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/core/error.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope {

enum class Buffer : std::uint8_t {
  residual,        // (rows, d_model)
  normalized,      // (rows, d_model)
  q,               // (rows, n_heads, d_head)
  k,               // (rows, n_kv_heads, d_head)
  v,               // (rows, n_kv_heads, d_head)
  z,               // (rows, n_heads, d_head)
  update,          // (rows, d_model) what attention or MLP adds
  router_logits,   // (rows, experts)
  expert_weights,  // (rows, k) of the k experts that a row chooses, highest first
  expert_indices,  // (rows, k) their numbers
  gate,            // (MLP rows, d_mlp) what the activation reads, then what it gives; in a mixture
                   // of experts (MLP rows, k, d_mlp), in the order of expert_indices
  up,              // the same in models with a gate
  logits,          // (rows, vocab_size)
};

enum class Norm : std::uint8_t { before_attention, before_mlp, after_layers };

// When what attention or MLP computed is added to the residual: at once; at once, with the update
// itself in Buffer::update to be shown; or by add_update(), after it was shown and edited.
enum class Addition : std::uint8_t { at_once, shown, deferred };

// Scores and patterns of chosen queries, float32 on the host.
struct RowScores {
  std::span<const std::int64_t> rows;  // of the batch
  TensorView scores;                   // (n_heads, rows, longest sequence) or empty
  TensorView pattern;                  // (n_heads, rows, longest sequence) or empty
  bool edited = false;                 // the observer will write into them
};

// A number in q, k or v that is NaN or infinite.
struct NonFinite {
  std::int64_t head = 0;
  std::int64_t sequence = 0;  // of the batch
};

// Takes the moments of documents, in the order of the batch.
class MomentSink {
 public:
  virtual ~MomentSink() = default;
  // Sums over the next document or documents, float64, around their own means. One call per
  // document on the CPU; a GPU may merge the documents of a batch first, always in the same way.
  virtual void add(const LayerMoments& part) = 0;
  virtual void refuse(const NonFinite& found) = 0;  // throws
};

// Takes groups B and C of a layer.
class AttentionSink {
 public:
  virtual ~AttentionSink() = default;
  virtual void add(LayerAttention attention) = 0;  // of the whole batch
};

// Keys and values of sequences that were run, in the memory of the device that made it. A backend
// works with those that it made.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
};

class Backend {
 public:
  explicit Backend(const LoadedCheckpoint& model) : model_(model) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const LoadedCheckpoint& model() const { return model_; }
  const ModelConfig& config() const { return model_.config; }

  // The batch must outlive the pass. What an earlier pass left unfinished is dropped.
  virtual void begin(const Batch& batch) = 0;
  // Room for keys and values of so many sequences of up to `positions` each.
  virtual std::unique_ptr<KeyValueStore> make_store(std::int64_t sequences,
                                                    std::int64_t positions) = 0;
  // After begin(): attention keeps the keys and values of this pass in the store, and sees those of
  // the positions that a sequence of the batch has behind it. The store must outlive the pass.
  virtual void use_store(KeyValueStore& store) = 0;
  virtual void embed() = 0;
  virtual void embed_positions() = 0;  // update; for models that learn them
  // In place of the embedding: (rows, d_model) float32 on the host or on the device.
  virtual void put_residual(ConstTensorView residual) = 0;
  // The steps up to the next call use the weights of this layer.
  virtual void begin_layer(std::int64_t layer) = 0;
  // In a model with parallel residuals the norm before the MLP is of the residual as it is now.
  virtual void keep_layer_input() = 0;
  virtual void normalize(Norm norm) = 0;  // normalized, of the residual; where the model has no
                                          // such norm, a copy
  virtual void project_qkv(bool values) = 0;
  virtual void normalize_heads() = 0;  // q and k
  virtual void rotate() = 0;           // RoPE and query scaling, where the layer has them
  virtual void attend() = 0;           // z
  virtual void project_output(Addition addition) = 0;
  virtual void add_update() = 0;

  // Layers with a mixture of experts, before their MLP runs: router_logits of all rows, and what
  // follows from them, expert_weights and expert_indices.
  virtual void project_router() = 0;
  virtual void choose_experts() = 0;

  // The MLP goes in chunks of at most this many rows: [begin, begin + count) of those that run.
  virtual std::int64_t mlp_rows() const = 0;
  virtual void project_gate_up(std::int64_t begin, std::int64_t count) = 0;
  virtual void gate(std::int64_t count) = 0;
  virtual void project_down(std::int64_t begin, std::int64_t count, Addition addition) = 0;

  virtual void project_logits() = 0;

  // From here on only these rows of the batch (ascending) go on: the residual and q are theirs
  // alone, and attention sees the keys and values of all.
  virtual void keep_rows(std::span<const std::int64_t> rows) = 0;
  virtual std::int64_t running_rows() const = 0;

  // Hands the chosen part of a buffer, float32 on the host, to `show`: now or later, in the order
  // of the calls, and before finish() returns. `selection` must stay as it is until then.
  using Show = std::function<void(ConstTensorView)>;
  virtual void read(Buffer buffer, const Selection& selection, Show show) = 0;
  // The pass goes on with what the tensor holds when `change` returns.
  virtual void edit(Buffer buffer, const std::function<void(TensorView)>& change) = 0;

  // A copy of the chosen part in the device's memory, complete when wait() or finish() returns.
  virtual ActivationCopy copy(Buffer buffer, const Selection& selection) = 0;
  // The pass goes on with these values of a whole buffer.
  virtual void put(Buffer buffer, const ActivationCopy& values) = 0;

  virtual void score_rows(const RowScores& out) = 0;
  // After the scores were edited: their pattern. A row that was left alone keeps its bits.
  virtual void pattern_of_edited_scores(const RowScores& edited) = 0;
  // After attend(): z of the rows that were edited.
  virtual void attend_edited_rows(const RowScores& edited) = 0;

  // Statistics. Request and sink must stay until finish() returns; a sink is called on the calling
  // thread, now or later in the order of the calls, and before finish() returns.

  // Adds up all rows of q, k or v as they are now. A NaN or an infinity among them goes to
  // sink.refuse().
  virtual void add_moments(Buffer buffer, const MomentRequest& request, MomentSink& sink) = 0;
  // Whether attend() also keeps the log-sum-exp and the largest score of every row and head, until
  // the next layer begins. No bit of z changes.
  virtual void keep_row_sums(bool keep) = 0;
  // After attend() with row sums: the columns of group B, and those of group C where the layout has
  // them.
  virtual void add_attention(const AttentionRequest& request, AttentionSink& sink) = 0;

  virtual void finish() = 0;

  // For measuring.
  virtual std::string hardware() const = 0;  // "neon, 2 threads", "NVIDIA H200"
  virtual void wait() = 0;                   // until the device has done what it was asked to
  virtual std::string attention_kernel() const = 0;  // that the last attend() took
  // FLOP/s that the device reaches in matrix products of the activations' type, for about so long.
  virtual double product_rate(double seconds) = 0;

 private:
  const LoadedCheckpoint& model_;
};

struct BackendOptions {
  Device device;
  DType dtype = DType::bf16;       // of weights and activations on CUDA; the CPU has float32
  std::int64_t device_memory = 0;  // bytes that may be taken on CUDA; 0: what is free
  std::int64_t longest_batch = 0;  // rows; 0: not known. Weights stream where they do not fit
                                   // beside the activations of such a batch
  bool stream_weights = false;     // also where they would fit
};

// Keeps a reference to the model.
std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model,
                                      const BackendOptions& options = {});

// Every id must be a row of the embedding and every sequence must have a token.
void check_batch(const Batch& batch, const ModelConfig& model);

// Where row `row` of the batch lies among those that still run (ascending; empty: all run).
inline std::int64_t running_row(std::span<const std::int64_t> kept, std::int64_t row) {
  if (kept.empty()) return row;
  const auto found = std::lower_bound(kept.begin(), kept.end(), row);
  QKSCOPE_ASSERT(found != kept.end() && *found == row);
  return found - kept.begin();
}

}  // namespace qkscope
