// Hook points: the named stages of the forward pass, with the names TransformerLens users know.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/selection.h"
#include "model/model_config.h"
#include "qkscope/tensor.h"

namespace qkscope {

// In the order in which they are computed. A stage outside the layers has layer -1.
enum class Stage : std::uint8_t {
  embed,
  resid_pre,
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
  attn_out,
  resid_mid,
  ln2_normalized,
  mlp_pre,
  mlp_pre_linear,
  mlp_post,
  mlp_out,
  resid_post,
  final_normalized,
  logits,
};

struct HookPoint {
  Stage stage = Stage::embed;
  std::int64_t layer = -1;

  bool operator==(const HookPoint&) const = default;
};

std::string hook_name(HookPoint point);  // "blocks.3.attn.hook_rot_q"

// Every hook point that fires for this model, in the order in which they fire.
std::vector<HookPoint> hook_points(const ModelConfig& model);

// Those that a name or glob pattern means; '*' also stands for any run of characters. A pattern
// that means none is an error that says the nearest name.
std::vector<HookPoint> match_hooks(const ModelConfig& model, std::span<const std::string> patterns);

// What someone wants to see of a forward pass, and to change in it.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual bool wants(HookPoint point) const = 0;

  // Called before each layer that runs; what it throws ends the pass.
  virtual void begin_layer(std::int64_t) {}

  // The rows and heads of a wanted point that see() gets, ascending; by default all. Must stay as
  // they are during the pass. The end of the network then runs for the chosen rows alone.
  virtual Selection selection(HookPoint) const { return {}; }

  // Called once per wanted point, in the order of firing, on the calling thread. The tensor is
  // borrowed: it is overwritten when this returns. Shapes as in docs/hooks.md, all float32, of the
  // chosen rows and heads.
  virtual void see(HookPoint point, ConstTensorView activation) = 0;

  // Of the wanted points, those shown to edit() instead of see().
  virtual bool edits(HookPoint) const { return false; }

  // The pass goes on with what the tensor holds when this returns. Edited scores give the pattern,
  // and an edited pattern gives z; a query whose row is left as it was keeps its z to the bit.
  virtual void edit(HookPoint, TensorView) {}

  // Whether wanted points but scores and patterns are given to hold() instead of see() and edit().
  virtual bool holds() const { return false; }

  // The tensor is the observer's to keep and lies where the backend computes. True: the pass goes
  // on with what it holds now; only where edits() says so.
  virtual bool hold(HookPoint, const ActivationCopy&) { return false; }

  // The rows whose attention scores and pattern are shown; empty: every row, the full square.
  virtual std::span<const std::int64_t> score_rows() const { return {}; }
};

}  // namespace qkscope
