// Device backend: runs the steps of the layer loop in forward/forward.cpp and owns the activations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope {

enum class ActivationBuffer : std::uint8_t {
  residual,        // (rows, d_model)
  normalized,      // (rows, d_model)
  q,               // (rows, n_heads, d_head)
  k,               // (rows, n_kv_heads, d_head)
  v,               // (rows, n_kv_heads, d_value)
  z,               // (rows, n_heads, d_value)
  update,          // (rows, d_model) output of attention or MLP before the residual addition
  router_logits,   // (rows, experts)
  expert_weights,  // (rows, k) router weights of the chosen experts, largest first
  expert_indices,  // (rows, k) indices of the chosen experts
  gate,    // (MLP rows, d_mlp) activation input, then output; with experts (MLP rows, k, d_mlp) in
           // the order of expert_indices
  up,      // like gate, for models with a gated MLP
  logits,  // (rows, vocab_size)
  kv_latent,  // (rows, kv_rank), for models with latent attention
};

enum class NormSite : std::uint8_t { before_attention, before_mlp, after_layers };

// How the output of attention or MLP is added to the residual. at_once: directly. shown: directly,
// and observers can read the output in ActivationBuffer::update. deferred: the output is stored in
// ActivationBuffer::update, observers may edit it, and add_update_to_residual() adds it.
enum class ResidualAddMode : std::uint8_t { at_once, shown, deferred };

// Attention scores and patterns of the selected queries, float32 on the host.
struct AttentionScores {
  std::span<const std::int64_t> rows;  // rows of the batch
  TensorView scores;                   // (n_heads, rows, longest sequence) or empty
  TensorView pattern;                  // (n_heads, rows, longest sequence) or empty
  bool edited = false;                 // true if the observer will edit them
};

// Location of a NaN or infinity in q, k or v.
struct NonFiniteLocation {
  std::int64_t head = 0;
  std::int64_t sequence = 0;  // index in the batch
};

// Receives the statistical moments of q, k or v for the documents of a batch, in batch order.
class MomentConsumer {
 public:
  virtual ~MomentConsumer() = default;
  // Adds the float64 moments of the next documents: the CPU backend passes those of one document;
  // the CUDA backend may merge the documents of a batch first, always in the same order.
  virtual void add(const LayerMoments& part) = 0;
  virtual void throw_non_finite(const NonFiniteLocation& found) = 0;  // names the position
};

class AttentionConsumer {
 public:
  virtual ~AttentionConsumer() = default;
  virtual void add(LayerAttentionSums attention) = 0;  // sums of the whole batch
};

// KV cache in device memory. A cache can be used only with the backend that created it.
class KvCacheMemory {
 public:
  virtual ~KvCacheMemory() = default;
};

// Runs one forward pass at a time on one device.
class Backend {
 public:
  explicit Backend(const LoadedCheckpoint& model) : model_(model) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const LoadedCheckpoint& model() const { return model_; }
  const ModelConfig& config() const { return model_.config; }

  // Starts a pass and discards any unfinished one. The batch must outlive the pass.
  virtual void begin_pass(const Batch& batch) = 0;
  // Allocates a KV cache for `sequences` sequences of up to `positions` tokens.
  virtual std::unique_ptr<KvCacheMemory> make_kv_cache(std::int64_t sequences,
                                                       std::int64_t positions) = 0;
  // Call after begin_pass(): attention appends the keys and values of this pass to the KV cache and
  // attends to all cached positions. The cache must outlive the pass.
  virtual void use_kv_cache(KvCacheMemory& store) = 0;
  virtual void embed_tokens() = 0;
  virtual void embed_positions() = 0;  // writes ActivationBuffer::update; learned positions only
  virtual void embed_per_layer_inputs() = 0;  // after embed_tokens(), if the model has them
  // Sets the residual instead of embedding tokens: (rows, d_model) float32 on host or device.
  virtual void set_residual(ConstTensorView residual) = 0;
  // Selects the layer whose weights the following steps use.
  virtual void begin_layer(std::int64_t layer) = 0;
  // Saves the residual for the MLP norm of models with parallel residuals.
  virtual void save_layer_input() = 0;
  // Normalises the residual into ActivationBuffer::normalized; copies it if the norm is absent.
  virtual void apply_norm(NormSite norm) = 0;
  // Call before project_qkv() if the model has latent attention.
  virtual void project_latents() = 0;
  virtual void project_qkv(bool values) = 0;
  virtual void apply_qk_norm() = 0;      // norms of q and k
  virtual void apply_rope() = 0;         // RoPE and query scaling, if the layer has them
  virtual void compute_attention() = 0;  // writes ActivationBuffer::z
  virtual void project_output(ResidualAddMode addition) = 0;
  virtual void add_update_to_residual() = 0;

  // Steps of layers with a recurrent mixer, instead of project_qkv() to project_output() or in
  // addition to them. run_recurrent_mixer() also computes the mixer states after `state_rows`
  // (ascending rows of the batch); mixer_states() returns these states on the host, with shape
  // MixerConfig::state_shape(), valid until the next step.
  virtual void run_recurrent_mixer(std::span<const std::int64_t> state_rows) = 0;
  virtual ConstTensorView mixer_states() = 0;
  virtual void project_mixer_output(ResidualAddMode addition) = 0;

  // Call before the MLP in layers with experts: project_router() computes router_logits,
  // choose_experts() computes expert_weights and expert_indices.
  virtual void project_router() = 0;
  virtual void choose_experts() = 0;

  // The MLP processes the active rows in chunks of at most mlp_chunk_rows().
  virtual std::int64_t mlp_chunk_rows() const = 0;
  virtual void project_gate_up(std::int64_t begin, std::int64_t count) = 0;
  virtual void apply_mlp_activation(std::int64_t count) = 0;
  virtual void project_down(std::int64_t begin, std::int64_t count, ResidualAddMode addition) = 0;

  // Call after the MLP, in models with per-layer inputs or with a residual scale per layer.
  virtual void project_per_layer_input(ResidualAddMode addition) = 0;
  virtual void scale_residual() = 0;

  virtual void project_logits() = 0;

  // Drops all rows except `rows` (ascending). Attention still uses keys and values of all rows.
  virtual void drop_rows_except(std::span<const std::int64_t> rows) = 0;
  virtual std::int64_t active_rows() const = 0;

  // Copies the selected part of a buffer to the host and passes it to `show`, immediately or later
  // but before finish_pass() returns, in call order. `selection` must stay valid until then.
  using HostTensorCallback = std::function<void(ConstTensorView)>;
  virtual void read_buffer(ActivationBuffer buffer, const Selection& selection,
                           HostTensorCallback show) = 0;
  // Lets `change` modify a buffer; the pass continues with the modified values.
  virtual void edit_buffer(ActivationBuffer buffer,
                           const std::function<void(TensorView)>& change) = 0;

  // Copies part of a buffer to device memory; complete after wait_until_idle() or finish_pass().
  virtual ActivationCopy copy_buffer(ActivationBuffer buffer, const Selection& selection) = 0;
  virtual void overwrite_buffer(ActivationBuffer buffer, const ActivationCopy& values) = 0;

  virtual void compute_row_scores(const AttentionScores& out) = 0;
  // Recomputes the attention pattern from edited scores; unedited rows stay bit-identical.
  virtual void recompute_attention_pattern(const AttentionScores& edited) = 0;
  // Recomputes z of rows with edited scores or pattern. Call after compute_attention().
  virtual void recompute_edited_rows(const AttentionScores& edited) = 0;

  // Statistics functions. `request` and `sink` must stay valid until finish_pass() returns. Results
  // are delivered to the sink on the calling thread, in call order, before finish_pass() returns.

  // Adds the moments of all rows of q, k or v; calls sink.throw_non_finite() on NaN or infinity.
  virtual void add_moments(ActivationBuffer buffer, const MomentRequest& request,
                           MomentConsumer& sink) = 0;
  // Sets whether compute_attention() keeps row sums (log-sum-exp, maximum) until the next layer.
  virtual void set_keep_softmax_sums(bool keep) = 0;
  // Adds statistics of the layer's attention weights to `sink`. Call after compute_attention(),
  // with set_keep_softmax_sums(true).
  virtual void add_attention_statistics(const AttentionRequest& request,
                                        AttentionConsumer& sink) = 0;

  virtual void finish_pass() = 0;

  // Used by benchmarks.
  virtual std::string describe_hardware() const = 0;      // "neon, 2 threads", "NVIDIA H200"
  virtual void wait_until_idle() = 0;                     // blocks until the device is idle
  virtual std::string attention_kernel_name() const = 0;  // kernel of the last compute_attention()
  // Measures the FLOP/s of large matrix products in the activation type, for about `seconds`.
  virtual double measure_flop_rate(double seconds) = 0;

 private:
  const LoadedCheckpoint& model_;
};

struct BackendOptions {
  Device device;
  DType dtype = DType::bf16;       // CUDA type of weights and activations; the CPU uses float32
  std::int64_t device_memory = 0;  // limit in bytes of GPU memory; 0: all that is free
  // Rows of the longest batch, 0 if unknown. Weights are streamed if they do not fit on the GPU
  // together with the activations of this batch.
  std::int64_t longest_batch = 0;
  bool stream_weights = false;  // stream even if the weights fit
};

// Creates a backend; the model must outlive it. Throws a bad-input error if the model cannot run.
std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model,
                                      const BackendOptions& options = {});

// Throws a bad-input error if the device is a GPU and some part of the model has no CUDA kernel.
void check_model_runs_on(Device device, const ModelConfig& model);

// Resolves device names (cpu, cuda:N, or all for every GPU) for one run; names may repeat. Throws a
// bad-input error if the list is empty or mixes device kinds, whose results differ.
std::vector<Device> choose_devices(const std::vector<std::string>& wanted);

// Returns the free memory of a GPU in bytes; 0 for the CPU.
std::int64_t free_memory_bytes(Device device);

// Throws a bad-input error if a token id has no embedding row or a sequence is empty or too long.
void check_batch_tokens(const Batch& batch, const ModelConfig& model);

// Returns the index of batch row `row` among the active rows `kept` (ascending; empty: all rows).
inline std::int64_t index_among_kept_rows(std::span<const std::int64_t> kept, std::int64_t row) {
  if (kept.empty()) return row;
  const auto found = std::lower_bound(kept.begin(), kept.end(), row);
  QKSCOPE_ASSERT(found != kept.end() && *found == row);
  return found - kept.begin();
}

}  // namespace qkscope
