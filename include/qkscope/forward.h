// The forward pass: hook points (its named stages), batches of token sequences, observers that read
// or edit activations, and devices.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tensor.h"
#include "qkscope/version.h"

namespace qkscope {

// Hook points use the names of TransformerLens; docs/reference/hooks.md lists their shapes.

// Stages in the order of computation. Stages outside the layers have layer -1.
enum class Stage : std::uint8_t {
  embed,
  pos_embed,
  resid_pre,
  attn_in,
  q_input,
  k_input,
  v_input,
  ln1_scale,
  ln1_normalized,
  kv_latent,
  q,
  k,
  v,
  q_normed,
  k_normed,
  rot_q,
  rot_k,
  mixer_in,
  mixer_state,
  attn_scores,
  pattern,
  z,
  result,
  mixer_out,
  attn_out,
  resid_mid,
  mlp_in,
  ln2_scale,
  ln2_normalized,
  router_logits,
  expert_weights,
  expert_indices,
  mlp_pre,
  mlp_pre_linear,
  mlp_post,
  mlp_out,
  per_layer_out,
  resid_post,
  final_scale,
  final_normalized,
  logits,
};

// A stage of one layer.
struct HookPoint {
  Stage stage = Stage::embed;
  std::int64_t layer = -1;

  bool operator==(const HookPoint&) const = default;
};

// Returns the name, e.g. "blocks.3.attn.hook_rot_q".
QKSCOPE_API std::string hook_name(HookPoint point);

// Returns every hook point of the model in firing order, except derived ones (see is_derived()).
QKSCOPE_API std::vector<HookPoint> hook_points(const ModelConfig& model);

// Derived hook points are computed only on request: inputs of individual heads, the contribution of
// each head, and norm scales. Only observers whose wants_derived() returns true receive them.
QKSCOPE_API bool is_derived(Stage stage);
QKSCOPE_API std::vector<HookPoint> derived_hook_points(const ModelConfig& model);

// Returns false for stages that cannot be edited (norm scales, head contributions); edit the
// normalised values or z instead.
QKSCOPE_API bool can_be_edited(Stage stage);

// Returns the hook points that match names or glob patterns, in firing order; '*' matches any
// characters including dots. Derived points match only patterns that end with their name
// ("*hook_result"). Throws a bad-input error that suggests the nearest name if a pattern matches
// nothing.
QKSCOPE_API std::vector<HookPoint> match_hooks(const ModelConfig& model,
                                               std::span<const std::string> patterns);

// A sequence of a batch. The sequences of a batch occupy consecutive rows of the same tensors and
// do not attend to each other.
struct Sequence {
  std::int64_t begin = 0;   // first row
  std::int64_t length = 0;  // number of rows; row begin + p holds position past + p
  std::int64_t past = 0;    // positions before the first row, which a KV cache holds
  std::int64_t slot = 0;    // slot of the KV cache

  std::int64_t end() const { return past + length; }  // number of positions of the text so far
};

// Token sequences that run together.
struct QKSCOPE_API Batch {
  std::vector<std::int32_t> ids;  // (rows) token ids of all sequences
  std::vector<Sequence> sequences;

  void add(std::span<const std::int32_t> sequence);  // token ids
  // Adds a sequence of `length` positions without tokens, for a run that starts from residuals.
  void add_positions(std::int64_t length);

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t longest() const;  // number of positions of the longest sequence
};

// Options to start a forward pass from a residual stream instead of token ids.
struct RunOptions {
  // Residual stream before layer start_at_layer: (rows of the batch, d_model), contiguous float32
  // on the host or on the GPU of the model. Earlier layers do not run and token ids are ignored.
  // Empty: the run starts from tokens.
  ConstTensorView residual = {};
  std::int64_t start_at_layer = 0;  // at most n_layers, which runs only the final norm and logits
};

// Part of an activation that an observer receives: everything, some rows, or some heads of some
// rows.
struct Selection {
  std::span<const std::int64_t> rows;  // ascending rows of the batch; empty: all
  std::span<const std::int64_t>
      heads;  // ascending heads of q, k, v or z, only together with rows; empty: all
  // If true, activations without a row selection, except at derived hook points, are passed in the
  // compute type, which halves the size of copies from a 16-bit GPU model. If false: float32.
  bool native_type = false;
};

// A float32 copy of an activation in the memory of the device that computed it. Copies of this
// struct share ownership of the values.
struct ActivationCopy {
  std::shared_ptr<void> memory;
  TensorView view;
};

// Callbacks of a forward pass. Derive from this class to read or edit activations.
class QKSCOPE_API Observer {
 public:
  virtual ~Observer() = default;

  // Returns true for hook points to observe; the network runs up to the last observed point.
  virtual bool wants(HookPoint point) const = 0;

  // Returns true if wants() should also be called for derived hook points (is_derived()).
  virtual bool wants_derived() const { return false; }

  // Called before each layer that runs; an exception ends the pass.
  virtual void begin_layer(std::int64_t /*layer*/) {}

  // Returns the part of a requested activation to pass to observe(); by default, the whole
  // activation. Must be constant during the pass. Once attention no longer needs all rows, only the
  // selected rows are computed.
  virtual Selection selection(HookPoint /*point*/) const { return {}; }

  // Called once per requested hook point in firing order on the calling thread. The tensor is on
  // the host, is float32 unless Selection::native_type is set, holds the selected rows and heads,
  // and is valid only during the call. docs/reference/hooks.md lists shapes.
  virtual void observe(HookPoint point, ConstTensorView activation) = 0;

  // Returns true for requested hook points that are passed to edit() instead of observe().
  virtual bool edits(HookPoint /*point*/) const { return false; }

  // Called with a mutable activation; the pass continues with the edited values. Edited scores
  // determine the pattern, and an edited pattern determines z. For unedited query rows, z stays
  // bit-identical.
  virtual void edit(HookPoint /*point*/, TensorView /*activation*/) {}

  // Returns true if requested hook points, other than scores, patterns, recurrent states and
  // derived points, are passed to keep().
  virtual bool keeps_on_device() const { return false; }

  // Receives a copy of an activation in device memory, which may outlive the pass. The values are
  // complete when the pass ends, or immediately at points for which edits() returns true. Only at
  // those points, keep() may return true to continue the pass with the values of the copy.
  virtual bool keep(HookPoint /*point*/, const ActivationCopy& /*activation*/) { return false; }

  // Returns the query rows for which scores and patterns are computed. Empty means all rows.
  virtual std::span<const std::int64_t> score_rows() const { return {}; }
};

// Observer that copies the activations of selected hook points to the host.
class QKSCOPE_API Collector : public Observer {
 public:
  struct Kept {
    HookPoint point;
    Tensor activation;
  };

  // Keeps the given rows of the batch (query rows for scores and patterns). Empty means all rows.
  Collector(std::vector<HookPoint> points, std::vector<std::int64_t> rows)
      : points_(std::move(points)), rows_(std::move(rows)) {}

  bool wants(HookPoint point) const override;
  bool wants_derived() const override { return true; }
  Selection selection(HookPoint point) const override;
  void observe(HookPoint point, ConstTensorView activation) override;
  std::span<const std::int64_t> score_rows() const override;

  std::vector<Kept>& kept() { return kept_; }  // in firing order

 private:
  std::vector<HookPoint> points_;
  std::vector<std::int64_t> rows_;
  std::vector<Kept> kept_;
};

// Throws a bad-input error if scores, patterns or per-head activations of `rows` positions and
// `keys` keys would exceed 16 GiB. The message suggests the option `how` for choosing positions.
QKSCOPE_API void check_score_size(const ModelConfig& model, std::span<const HookPoint> points,
                                  std::int64_t rows, std::int64_t keys, std::string_view how);

// Resolves cpu, cuda (the first GPU), cuda:N or auto (the first usable GPU, else the CPU). Throws a
// bad-input error if the device cannot be used.
QKSCOPE_API Device choose_device(const std::string& wanted);

// Returns "cpu", "cuda:0", ...
QKSCOPE_API std::string device_name(Device device);

// Returns the number of GPUs of this machine; 0 if none can be used.
QKSCOPE_API int cuda_device_count();

// Returns why cuda_device_count() is 0, e.g. "the NVIDIA driver finds no GPU".
QKSCOPE_API std::string why_no_cuda();

// Copies values between contiguous tensors of the same type and size on any devices. Waits for GPU
// work that may still be writing to `from`, and then for the copy.
QKSCOPE_API void copy_values(TensorView to, ConstTensorView from);

}  // namespace qkscope
