#include <array>
#include <functional>
#include <initializer_list>
#include <string_view>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "engine/forward/forward.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Hook name and properties of a stage; the table follows the order of enum Stage.
struct StageInfo {
  Stage stage;
  std::string_view name;  // hook name; in a layer, the part after "blocks.N."
  bool in_layer;
  bool derived = false;
};

constexpr std::array kStages = {
    StageInfo{Stage::embed, "hook_embed", false},
    StageInfo{Stage::pos_embed, "hook_pos_embed", false},
    StageInfo{Stage::resid_pre, "hook_resid_pre", true},
    StageInfo{Stage::attn_in, "hook_attn_in", true, true},
    StageInfo{Stage::q_input, "hook_q_input", true, true},
    StageInfo{Stage::k_input, "hook_k_input", true, true},
    StageInfo{Stage::v_input, "hook_v_input", true, true},
    StageInfo{Stage::ln1_scale, "ln1.hook_scale", true, true},
    StageInfo{Stage::ln1_normalized, "ln1.hook_normalized", true},
    StageInfo{Stage::kv_latent, "attn.hook_kv_latent", true},
    StageInfo{Stage::q, "attn.hook_q", true},
    StageInfo{Stage::k, "attn.hook_k", true},
    StageInfo{Stage::v, "attn.hook_v", true},
    StageInfo{Stage::q_normed, "attn.hook_q_normed", true},
    StageInfo{Stage::k_normed, "attn.hook_k_normed", true},
    StageInfo{Stage::rot_q, "attn.hook_rot_q", true},
    StageInfo{Stage::rot_k, "attn.hook_rot_k", true},
    StageInfo{Stage::mixer_in, "mixer.hook_in", true},
    StageInfo{Stage::mixer_state, "mixer.hook_state", true},
    StageInfo{Stage::attn_scores, "attn.hook_attn_scores", true},
    StageInfo{Stage::pattern, "attn.hook_pattern", true},
    StageInfo{Stage::z, "attn.hook_z", true},
    StageInfo{Stage::result, "attn.hook_result", true, true},
    StageInfo{Stage::mixer_out, "mixer.hook_out", true},
    StageInfo{Stage::attn_out, "hook_attn_out", true},
    StageInfo{Stage::resid_mid, "hook_resid_mid", true},
    StageInfo{Stage::mlp_in, "hook_mlp_in", true, true},
    StageInfo{Stage::ln2_scale, "ln2.hook_scale", true, true},
    StageInfo{Stage::ln2_normalized, "ln2.hook_normalized", true},
    StageInfo{Stage::router_logits, "mlp.hook_router_logits", true},
    StageInfo{Stage::expert_weights, "mlp.hook_expert_weights", true},
    StageInfo{Stage::expert_indices, "mlp.hook_expert_indices", true},
    StageInfo{Stage::mlp_pre, "mlp.hook_pre", true},
    StageInfo{Stage::mlp_pre_linear, "mlp.hook_pre_linear", true},
    StageInfo{Stage::mlp_post, "mlp.hook_post", true},
    StageInfo{Stage::mlp_out, "hook_mlp_out", true},
    StageInfo{Stage::per_layer_out, "hook_per_layer_out", true},
    StageInfo{Stage::resid_post, "hook_resid_post", true},
    StageInfo{Stage::final_scale, "ln_final.hook_scale", false, true},
    StageInfo{Stage::final_normalized, "ln_final.hook_normalized", false},
    StageInfo{Stage::logits, "logits", false},
};

bool is_one_of(Stage stage, std::initializer_list<Stage> stages) {
  return std::ranges::find(stages, stage) != stages.end();
}

// Returns true for stages before the first layer, which see every row of the batch.
bool is_embedding_stage(Stage stage) {
  return is_one_of(stage, {Stage::embed, Stage::pos_embed});
}

bool is_mixer_stage(Stage stage) {
  return is_one_of(stage, {Stage::mixer_in, Stage::mixer_state, Stage::mixer_out});
}

// Returns true for attention scores and patterns, of shape (n_heads, queries, keys).
bool is_score_stage(Stage stage) {
  return is_one_of(stage, {Stage::attn_scores, Stage::pattern});
}

// Returns the number of heads of an activation, or 0 if it has no head dimension.
std::int64_t activation_head_count(const ModelConfig& model, HookPoint point) {
  if (is_one_of(point.stage, {Stage::q, Stage::q_normed, Stage::rot_q, Stage::z}))
    return model.n_heads;
  if (is_one_of(point.stage, {Stage::k, Stage::k_normed, Stage::rot_k, Stage::v}))
    return model.n_kv_heads_of(model.layer(point.layer));
  return 0;
}

bool is_attention_stage(Stage stage) {
  return (stage >= Stage::attn_in && stage <= Stage::v_input) ||
         (stage >= Stage::kv_latent && stage <= Stage::attn_out && !is_mixer_stage(stage));
}

// Returns the last layer for which holds(layer) is true; layer 0 if there is none.
template <typename Holds>
std::int64_t last_layer_with(const ModelConfig& model, Holds holds) {
  auto last = model.n_layers - 1;
  while (last > 0 && !holds(model.layer(last))) --last;
  return last;
}

// Throws a bad-input error if `pattern` matches an attention hook of a layer without attention.
void check_layers_have_attention(const ModelConfig& model, const std::string& pattern) {
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    if (model.layers[as_index(layer)].attends()) continue;
    if (std::ranges::any_of(kStages, [&](const StageInfo& entry) {
          return is_attention_stage(entry.stage) &&
                 glob_match(pattern, hook_name({entry.stage, layer}));
        }))
      reject("hook '{}': layer {} of this {} model has no attention; layers with attention are {}",
             pattern, layer, model.family, format_layer_ranges_by_attention(model, true));
  }
}

void check_indices_in_range(std::span<const std::int64_t> chosen, std::int64_t count,
                            std::string_view what, std::string_view where) {
  for (const auto number : chosen)
    if (number < 0 || number >= count)
      reject("observer: {} {} of {} is not there; found {}, numbered from 0", what, number, where,
             count);
}

void check_observer_selection(const ModelConfig& model, const Observer& observer, HookPoint point,
                              std::int64_t rows) {
  if (is_score_stage(point.stage))
    return check_indices_in_range(observer.score_rows(), rows, "row", hook_name(point));
  if (!can_be_edited(point.stage) && observer.edits(point))
    reject("observer: {} can be looked at and not edited; edit {}", hook_name(point),
           point.stage == Stage::result        ? "attn.hook_z"
           : point.stage == Stage::mixer_state ? "mixer.hook_in"
                                               : "hook_normalized");
  const auto [chosen_rows, heads, native] = observer.selection(point);
  check_indices_in_range(chosen_rows, rows, "row", hook_name(point));
  if (!heads.empty())
    check_indices_in_range(heads, activation_head_count(model, point), "head", hook_name(point));
}

std::vector<HookPoint> select_hook_points(const ModelConfig& model, bool derived) {
  auto points = all_hook_points(model);
  std::erase_if(points, [&](HookPoint point) { return is_derived(point.stage) != derived; });
  return points;
}

}  // namespace

bool has_hook_point(const ModelConfig& model, HookPoint point) {
  const auto is = [&](auto... stages) { return is_one_of(point.stage, {stages...}); };
  if (is(Stage::pos_embed)) return model.learned_positions();
  if (point.layer >= 0) {
    const auto& layer = model.layers[as_index(point.layer)];
    const bool mixes = layer.mixer != Mixer::none;
    if (is_attention_stage(point.stage) && !layer.attends()) return false;
    if (is_mixer_stage(point.stage)) return layer.has_state();
    if (is(Stage::resid_mid) && !(mixes && layer.mlp)) return false;
    if (is(Stage::ln1_scale, Stage::ln1_normalized) && !mixes) return false;
    if (point.stage >= Stage::mlp_in && point.stage <= Stage::mlp_out && !layer.mlp) return false;
    if (layer.has_state() &&
        is(Stage::ln1_scale, Stage::ln1_normalized, Stage::ln2_scale, Stage::ln2_normalized))
      return true;
  }
  if (is(Stage::ln1_scale, Stage::ln1_normalized)) return !model.names.input_norm.empty();
  if (is(Stage::ln2_normalized)) return !model.names.mlp_norm.empty();
  if (is(Stage::kv_latent)) return model.has_latent_attention();
  if (is(Stage::per_layer_out)) return model.per_layer.width > 0;
  if (is(Stage::k, Stage::k_normed, Stage::k_input, Stage::v, Stage::v_input) &&
      model.layer(point.layer).shares_kv())
    return false;
  if (is(Stage::attn_in, Stage::q_input, Stage::k_input, Stage::v_input))
    return !model.has_latent_attention();  // heads of MLA read shared latents instead
  if (is(Stage::q_normed, Stage::k_normed)) return model.qk_norm;
  if (is(Stage::resid_mid, Stage::mlp_in)) return !model.parallel_residual;
  if (is(Stage::ln2_scale)) return !model.parallel_residual && !model.names.mlp_norm.empty();
  if (is(Stage::router_logits, Stage::expert_weights, Stage::expert_indices))
    return model.layers[as_index(point.layer)].experts;
  if (is(Stage::result)) return !model.has_attention_gate();  // the gate mixes into every head
  return !is(Stage::mlp_pre_linear) || model.gated_mlp();
}

std::string hook_name(HookPoint point) {
  return translate_exceptions([&] {
    const auto& entry = kStages[static_cast<std::size_t>(point.stage)];
    QKSCOPE_ASSERT(entry.stage == point.stage);
    return entry.in_layer ? fmt::format("blocks.{}.{}", point.layer, entry.name)
                          : std::string(entry.name);
  });
}

std::vector<HookPoint> hook_points(const ModelConfig& model) {
  return select_hook_points(model, false);
}

std::vector<HookPoint> derived_hook_points(const ModelConfig& model) {
  return select_hook_points(model, true);
}

std::vector<HookPoint> all_hook_points(const ModelConfig& model) {
  return translate_exceptions([&] {
    std::vector<HookPoint> points{{Stage::embed}};
    if (model.learned_positions()) points.push_back({Stage::pos_embed});
    for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
      if (model.layers[as_index(layer)].cross_attention) continue;
      for (const auto& entry : kStages)
        if (entry.in_layer && has_hook_point(model, {entry.stage, layer}))
          points.push_back({entry.stage, layer});
    }
    for (const auto stage : {Stage::final_scale, Stage::final_normalized, Stage::logits})
      points.push_back({stage});
    return points;
  });
}

std::vector<HookPoint> match_hooks(const ModelConfig& model,
                                   std::span<const std::string> patterns) {
  return translate_exceptions([&] {
    const auto points = all_hook_points(model);
    const auto names = to_vector(points, hook_name);
    const auto matches_point = [&](const std::string& pattern, std::size_t i) {
      const auto last_part = names[i].substr(names[i].rfind('.') + 1);  // hook_q of attn.hook_q
      return glob_match(pattern, names[i]) &&
             (!is_derived(points[i].stage) || pattern.ends_with(last_part));
    };
    std::vector<bool> chosen(points.size());
    for (const auto& pattern : patterns) {
      bool matched = false;
      for (std::size_t i = 0; i < points.size(); ++i)
        if (matches_point(pattern, i)) matched = chosen[i] = true;
      if (matched) continue;
      check_layers_have_attention(model, pattern);
      const auto guess = closest_spelling(pattern, names);
      reject(
          "hook '{}': no such hook point in this {} model of {} layers{}; docs/reference/hooks.md "
          "lists them",
          pattern, model.family, model.n_layers,
          guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess));
    }
    std::vector<HookPoint> matches;
    for (std::size_t i = 0; i < points.size(); ++i)
      if (chosen[i]) matches.push_back(points[i]);
    return matches;
  });
}

bool is_derived(Stage stage) {
  return kStages[static_cast<std::size_t>(stage)].derived;
}

bool can_be_edited(Stage stage) {
  return !is_one_of(stage, {Stage::ln1_scale, Stage::ln2_scale, Stage::final_scale, Stage::result,
                            Stage::mixer_state});
}

bool Collector::wants(HookPoint point) const {
  return std::ranges::find(points_, point) != points_.end();
}

Selection Collector::selection(HookPoint point) const {
  if (is_score_stage(point.stage)) return {};  // score_rows() already limits the computation
  return {.rows = rows_, .heads = {}};
}

void Collector::observe(HookPoint point, ConstTensorView activation) {
  translate_exceptions([&] { kept_.push_back({point, copy_tensor(activation)}); });
}

std::span<const std::int64_t> Collector::score_rows() const {
  return rows_;
}

void check_score_size(const ModelConfig& model, std::span<const HookPoint> points,
                      std::int64_t rows, std::int64_t keys, std::string_view how) {
  translate_exceptions([&] {
    constexpr std::uint64_t kLimit = std::uint64_t{16} << 30;
    std::uint64_t squares = 0;
    std::uint64_t of_heads = 0;
    for (const auto point : points) {
      const auto floats = [&](std::int64_t count) {
        return static_cast<std::uint64_t>(count) * sizeof(float);
      };
      if (is_score_stage(point.stage)) squares += floats(model.n_heads * rows * keys);
      if (is_one_of(point.stage, {Stage::result, Stage::attn_in, Stage::q_input}))
        of_heads += floats(model.n_heads * rows * model.d_model);
      if (is_one_of(point.stage, {Stage::k_input, Stage::v_input}))
        of_heads += floats(model.n_kv_heads_of(model.layer(point.layer)) * rows * model.d_model);
    }
    if (squares > kLimit)
      reject(
          "attention scores and patterns of {} query positions x {} keys would take {}; "
          "choose query positions with {}",
          rows, keys, format_bytes(squares), how);
    if (of_heads > kLimit)
      reject(
          "inputs and results of every head at {} positions would take {}; choose positions "
          "with {}",
          rows, format_bytes(of_heads), how);
  });
}

PassPlan::PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows,
                   const RunOptions& options)
    : n_layers_(model.n_layers) {
  const auto first = options.residual.empty() ? -1 : options.start_at_layer;
  const auto points = observer.wants_derived() ? all_hook_points(model) : hook_points(model);
  for (const auto point : points)
    if (layer_index(point) >= first && observer.wants(point)) wanted_.push_back(point);
  if (empty()) return;
  for (const auto point : wanted_) check_observer_selection(model, observer, point, rows);
  const auto attention = std::max(last_attention_layer(model), options.start_at_layer - 1);
  if (!try_drop_rows(attention, observer, rows)) try_drop_rows(n_layers_, observer, rows);
}

PassPlan::PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows,
                   Stage statistics)
    : PassPlan(model, observer, rows) {
  const HookPoint end{statistics, last_layer_with(model, std::mem_fn(&LayerConfig::has_attention))};
  if (ends_before(end)) wanted_.push_back(end);
  kept_rows_.clear();  // statistics need every row
}

void PassPlan::include_all_keys_and_values(const ModelConfig& model) {
  const auto last = last_layer_with(model, std::not_fn(&LayerConfig::cross_attention));
  if (drop_layer_ < last) kept_rows_.clear();
  if (ends_before({Stage::z, last})) wanted_.push_back({Stage::z, last});
}

std::int64_t PassPlan::layer_index(HookPoint point) const {
  if (is_embedding_stage(point.stage)) return -1;
  return point.layer >= 0 ? point.layer : n_layers_;
}

bool PassPlan::ends_before(HookPoint point) const {
  if (empty()) return true;
  const auto last = wanted_.back();
  return layer_index(last) < layer_index(point) ||
         (layer_index(last) == layer_index(point) && last.stage < point.stage);
}

// Returns the last layer whose attention or recurrence must run; layers up to it need all rows.
std::int64_t PassPlan::last_attention_layer(const ModelConfig& model) const {
  const auto last = wanted_.back();
  auto layer = layer_index(last);
  if (layer >= 0 && layer < n_layers_ && last.stage > Stage::rot_k) return layer;
  do --layer;
  while (layer >= 0 && model.layers[as_index(layer)].cross_attention);
  return std::max<std::int64_t>(layer, -1);
}

bool PassPlan::try_drop_rows(std::int64_t layer, const Observer& observer, std::int64_t rows) {
  std::vector<bool> needed(as_index(rows));
  for (const auto point : wanted_) {
    const bool edits = observer.edits(point);
    // Edits of scores or patterns take effect after attention, when its output z is recomputed.
    const auto last_before = edits ? Stage::rot_k : Stage::pattern;
    const bool after =
        layer_index(point) > layer || (layer_index(point) == layer && point.stage > last_before);
    if (!after || is_embedding_stage(point.stage)) continue;
    if (edits) return false;  // an edit may read every row
    const auto chosen = observer.selection(point).rows;
    if (chosen.empty()) return false;
    for (const auto row : chosen) {
      // Check again: the observer may return a different selection on the second call.
      if (row < 0 || row >= rows)
        reject("an observer chooses row {}, the pass has rows 0 to {}", row, rows - 1);
      needed[as_index(row)] = true;
    }
  }
  drop_layer_ = layer;
  for (std::int64_t row = 0; row < rows; ++row)
    if (needed[as_index(row)]) kept_rows_.push_back(row);
  if (std::ssize(kept_rows_) == rows) kept_rows_.clear();
  return true;
}

}  // namespace qkscope
