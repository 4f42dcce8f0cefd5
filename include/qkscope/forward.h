// The forward pass: the named stages of it (hook points), batches of token sequences, observers
// that look at activations or edit them, and the devices it runs on.
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

// Hook points: the stages of the forward pass under the names that TransformerLens users know.
// docs/hooks.md has their shapes.

// In the order in which they are computed. A stage outside the layers has layer -1.
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
  q,
  k,
  v,
  q_normed,
  k_normed,
  rot_q,
  rot_k,
  attn_scores,
  pattern,
  z,
  result,
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
  resid_post,
  final_scale,
  final_normalized,
  logits,
};

struct HookPoint {
  Stage stage = Stage::embed;
  std::int64_t layer = -1;

  bool operator==(const HookPoint&) const = default;
};

QKSCOPE_API std::string hook_name(HookPoint point);  // "blocks.3.attn.hook_rot_q"

// Every hook point that fires for this model, in the order in which they fire, but for the derived
// ones.
QKSCOPE_API std::vector<HookPoint> hook_points(const ModelConfig& model);

// Points that no pass computes for itself: the inputs of single heads, what each head adds, and the
// scales of norms. They fire for observers that ask for them by name.
QKSCOPE_API bool is_derived(Stage stage);
QKSCOPE_API std::vector<HookPoint> derived_hook_points(const ModelConfig& model);

// All but the scales and what each head adds; for these edit the norm's result and z.
QKSCOPE_API bool can_be_edited(Stage stage);

// Those that names or glob patterns mean, in the order in which they fire; '*' stands for any run
// of characters, dots included. Derived points are meant by patterns that end with their name
// ("*hook_result"). A pattern that means none is an error that gives the nearest name.
QKSCOPE_API std::vector<HookPoint> match_hooks(const ModelConfig& model,
                                               std::span<const std::string> patterns);

// Token sequences that run together, one after another in the rows of the same tensors. They do not
// see each other.

struct Sequence {
  std::int64_t begin = 0;   // first row
  std::int64_t length = 0;  // rows; row begin + p holds position past + p
  std::int64_t past = 0;    // positions before the first row, whose keys and values a cache holds
  std::int64_t slot = 0;    // of the cache

  std::int64_t end() const { return past + length; }  // positions of the text so far
};

struct QKSCOPE_API Batch {
  std::vector<std::int32_t> ids;  // (rows) token ids of all sequences
  std::vector<Sequence> sequences;

  void add(std::span<const std::int32_t> sequence);  // token ids
  // A sequence of so many positions without tokens, for a run that starts from residuals.
  void add_positions(std::int64_t length);

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t longest() const;  // positions of the longest sequence
};

// Where a run starts, if not from the tokens of its batch.
struct RunOptions {
  // The residual stream before layer start_at_layer, (rows of the batch, d_model), float32 and
  // contiguous, on the host or on the model's GPU. What comes before that layer does not run, and
  // token ids are not looked at. Empty: the run starts from the tokens.
  ConstTensorView residual = {};
  std::int64_t start_at_layer = 0;  // up to n_layers, where only the final norm and logits are left
};

// Which part of an activation an observer gets: all of it, some rows, or some heads of some rows.
struct Selection {
  std::span<const std::int64_t> rows;   // of the batch, ascending; empty: all
  std::span<const std::int64_t> heads;  // of q, k, v or z, ascending, with rows; empty: all
};

// An activation that was copied for the observer, float32, in the memory of the device that
// computed it. Copies of this struct share the values; they live as long as one of them.
struct ActivationCopy {
  std::shared_ptr<void> memory;
  TensorView view;
};

// What a program wants to see of a forward pass, and to change in it: derive from it and pass it to
// the run.
class QKSCOPE_API Observer {
 public:
  virtual ~Observer() = default;

  // The network runs up to the last point that is wanted.
  virtual bool wants(HookPoint point) const = 0;

  // Whether wants() is asked about derived points.
  virtual bool wants_derived() const;

  // Called before each layer that runs; what it throws ends the pass.
  virtual void begin_layer(std::int64_t layer);

  // The part of a wanted point that see() gets; by default all. Must stay as it is during the pass.
  // The end of the network then runs for the selected rows alone.
  virtual Selection selection(HookPoint point) const;

  // Called once per wanted point, in the order of firing, on the calling thread. The tensor is
  // borrowed: it is overwritten when this returns. Shapes as in docs/hooks.md, all float32 on the
  // host, of the selected rows and heads.
  virtual void see(HookPoint point, ConstTensorView activation) = 0;

  // Of the wanted points, those shown to edit() instead of see().
  virtual bool edits(HookPoint point) const;

  // The pass goes on with the values that the tensor has when this returns. Edited scores give the
  // pattern, and an edited pattern gives z; a query whose row is left as it was keeps its z to the
  // bit.
  virtual void edit(HookPoint point, TensorView activation);

  // Whether wanted points other than scores, patterns and derived ones go to keep() instead of
  // see() and edit().
  virtual bool keeps_on_device() const;

  // The copy is the observer's and may outlive the pass. It has its values when the pass ends, and
  // where edits() is true now. True, allowed there: the pass goes on with the values that the copy
  // has when this returns.
  virtual bool keep(HookPoint point, const ActivationCopy& activation);

  // The rows of the batch whose attention scores and patterns are shown; empty: every row, the full
  // square.
  virtual std::span<const std::int64_t> score_rows() const;
};

// An observer that keeps copies, on the host, of what chosen hook points show.
class QKSCOPE_API Collector : public Observer {
 public:
  struct Kept {
    HookPoint point;
    Tensor activation;
  };

  // `rows` of the batch are kept, of scores and patterns those query rows; empty: all.
  Collector(std::vector<HookPoint> points, std::vector<std::int64_t> rows)
      : points_(std::move(points)), rows_(std::move(rows)) {}

  bool wants(HookPoint point) const override;
  bool wants_derived() const override { return true; }
  Selection selection(HookPoint point) const override;
  void see(HookPoint point, ConstTensorView activation) override;
  std::span<const std::int64_t> score_rows() const override;

  std::vector<Kept>& kept() { return kept_; }  // in the order of firing

 private:
  std::vector<HookPoint> points_;
  std::vector<std::int64_t> rows_;
  std::vector<Kept> kept_;
};

// Refuses scores, patterns and what there is of every head, that would take more than 16 GiB at
// `rows` positions x `keys`, before they are computed. `how` says where positions are chosen
// ("--positions"), for the message.
QKSCOPE_API void check_score_size(const ModelConfig& model, std::span<const HookPoint> points,
                                  std::int64_t rows, std::int64_t keys, std::string_view how);

// Devices.

// The device that `wanted` means: cpu, cuda (the first GPU), cuda:N, or auto (the first GPU where
// there is one that can be used, else the CPU). Throws where it cannot be used.
QKSCOPE_API Device choose_device(const std::string& wanted);

QKSCOPE_API std::string device_name(Device device);  // "cpu", "cuda:0"

// GPUs in this machine; 0 where none can be used.
QKSCOPE_API int cuda_device_count();

// The reason where cuda_device_count() is 0: "the NVIDIA driver finds no GPU".
QKSCOPE_API std::string why_no_cuda();

// Copies values between tensors on any devices; both contiguous, of the same element type and
// number of elements. Waits for work on a GPU that may still write `from`, and is done when it
// returns.
QKSCOPE_API void copy_values(TensorView to, ConstTensorView from);

}  // namespace qkscope
