// Model configurations and weights as plain data, and Model, a checkpoint ready to run.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/tensor.h"
#include "qkscope/version.h"

namespace qkscope {

// Kinds of rotary position embedding (RoPE), named as in config.json.
enum class RopeType { standard, linear, dynamic, yarn, llama3, longrope, proportional };

// Parameters of one RoPE.
struct RopeConfig {
  RopeType type = RopeType::standard;
  double theta = 10000.0;
  bool reversed = false;           // rotates by negative angles
  std::int64_t dim = 0;            // rotated dimensions of a head, even
  std::int64_t begin = 0;          // first rotated dimension of a head
  std::int64_t max_positions = 0;  // max_position_embeddings
  double factor = 1.0;
  std::int64_t original_max = 0;           // original_max_position_embeddings
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  double mscale = 0.0;                     // yarn; 0: not given
  double mscale_all_dim = 0.0;             // yarn; 0: not given
  bool truncate = true;                    // yarn
  std::optional<double> attention_factor;  // yarn, longrope
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  std::vector<double> short_factor;        // longrope, dim / 2
  std::vector<double> long_factor;         // longrope, dim / 2
  std::int64_t rotated_pairs = 0;          // proportional: later pairs have frequency 0
};

// Returns the name used in config.json: "default", "yarn", ...
QKSCOPE_API std::string rope_type_name(RopeType type);

// Frequencies of one RoPE.
struct RopeFrequencies {
  std::vector<float> inverse;     // (dim / 2), radians per position
  float attention_factor = 1.0f;  // multiplies cos and sin
};

// Returns the frequencies for a sequence of `length` tokens; only dynamic and longrope depend on
// the length. Computes in float32 with the same order of operations as Hugging Face transformers.
QKSCOPE_API RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t length);

// Activation functions of the MLP.
enum class Activation { silu, gelu_tanh, gelu, relu2, sigmoid, xielu, clamped_swiglu };

// Clamped SwiGLU of gpt-oss: (min(max(up, -limit), limit) + 1) g / (1 + exp(-alpha g)) with g =
// min(gate, limit).
struct ClampedSwiglu {
  float alpha = 1.702f;
  float limit = 7.0f;
};

// RMSNorm divides by the root mean square; LayerNorm subtracts the mean first.
enum class NormKind { rms, layer };

// How a layer mixes tokens: softmax attention, one of the other kinds in MixerConfig, or not at all
// (none: the layer is an MLP).
enum class Mixer : std::uint8_t {
  attention,
  gated_delta,
  mamba2,
  short_convolution,
  none,
  kimi_delta
};

// Returns the name of a mixer for messages, in the singular: "gated delta net".
QKSCOPE_API std::string_view mixer_name(Mixer mixer);

// Settings of one layer.
struct LayerConfig {
  bool cross_attention = false;  // mllama: attends to an image; skipped for text
  Mixer mixer = Mixer::attention;
  bool attention_beside = false;  // attention runs beside the mixer, from the same normalised input
  bool mlp = true;                // false: the layer ends after its mixer
  std::int64_t window = 0;        // visible keys of a query, itself included; 0: all before it
  std::int64_t chunk = 0;    // a query sees keys of its own chunk of positions; 0: of all chunks
  int rope = 0;              // index into ModelConfig::ropes; -1: none (NoPE)
  double score_scale = 1.0;  // multiplies q.k in addition to ModelConfig::attention_scale
  bool experts = false;      // the MLP is a mixture of experts
  // Sizes of this layer if they differ from the model's; 0: same as the model.
  std::int64_t d_head = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_mlp = 0;
  std::int64_t kv_layer = -1;  // earlier layer whose keys and values are used; -1: the layer's own
  bool v_from_k = false;       // W_V is W_K

  // Whether the layer has attention: to text, or to an image if cross_attention is set.
  bool attends() const { return mixer == Mixer::attention || attention_beside; }
  bool has_attention() const { return !cross_attention && attends(); }
  // Whether the layer has a recurrent mixer, which keeps a state instead of keys and values.
  bool has_state() const { return mixer != Mixer::attention && mixer != Mixer::none; }
  bool shares_kv() const { return kv_layer >= 0; }
  // Index of the layer whose keys and values this layer uses; `own` is the index of this layer.
  std::int64_t kv_source(std::int64_t own) const { return shares_kv() ? kv_layer : own; }
};

// The mixer of layers without attention, or beside it. Every value head of a gated delta net (arXiv
// 2412.06464) has a recurrent state S (d_key, d_value), which the q and k of token t, of unit
// length, read and write:
//   S = a S, then S += b k (v - Sᵀ k)ᵀ, output = Sᵀ q / sqrt(d_key),
// with the decay a = exp(-exp(A_log) softplus(W_a x + dt_bias)) and the rate b = rate_scale
// sigmoid(W_b x). A causal convolution with SiLU precedes q, k and v; RMSNorm and the gate
// silu(W_z x) follow the output.
// Kimi Delta Attention (arXiv 2510.26692) has one decay per channel of k: a (d_key) multiplies the
// rows of S. W_a and W_z have rank d_key and d_value, and the gate is sigmoid(W_z x).
// Mamba 2 (arXiv 2405.21060), whose B, C and x are k, q and v, and whose groups are key heads:
//   S = a S + b k vᵀ, output = Sᵀ q + D v,
// with b = softplus(W_a x + dt_bias) within [least_rate, most_rate], and a = exp(-exp(A_log) b).
// The convolution is the same; the norm has one group per key head and may follow the gate.
// A short convolution (LFM2) has no recurrence: output = (W_z x) * convolution((W_k x) * (W_v x)),
// without SiLU, over value_heads * d_value = d_model channels.
struct MixerConfig {
  Mixer kind = Mixer::attention;  // attention: the model has no other mixers
  std::int64_t key_heads = 0;     // heads of q and k; 0 in a short convolution
  std::int64_t value_heads = 0;   // a multiple of key_heads: consecutive heads share q and k
  std::int64_t d_key = 0;
  std::int64_t d_value = 0;
  std::int64_t taps = 4;  // length of the convolution
  double norm_eps = 1e-6;
  double rate_scale = 1.0;
  double least_rate = 0.0;
  double most_rate = std::numeric_limits<double>::infinity();
  bool gate_before_norm = false;
  bool input_bias = false;
  bool convolution_bias = false;
  bool output_bias = false;

  std::int64_t key_width() const { return key_heads * d_key; }
  std::int64_t value_width() const { return value_heads * d_value; }
  std::int64_t channels() const { return 2 * key_width() + value_width(); }  // of q, k and v
  bool has_delta_rule() const { return kind == Mixer::gated_delta || kind == Mixer::kimi_delta; }
  // Number of decay factors per token.
  std::int64_t decays() const { return kind == Mixer::kimi_delta ? key_width() : value_heads; }
  // Sum of the ranks of W_a and W_z if each is a product of two matrices; 0: full matrices.
  std::int64_t gate_rank() const { return kind == Mixer::kimi_delta ? d_key + d_value : 0; }
  // Shape of the recurrent states recorded after each of `rows` rows. The state of a short
  // convolution is the buffer of inputs that the next token reads.
  Shape state_shape(std::int64_t rows) const {
    return kind == Mixer::short_convolution ? Shape{rows, taps - 1, channels()}
                                            : Shape{rows, value_heads, d_key, d_value};
  }
};

// Constant factors on projections (Falcon-H1 calls them multipliers). Loading a checkpoint
// multiplies the weights by them.
struct ProjectionScales {
  double attention_input = 1.0;  // factor on the input of q, k and v
  double k = 1.0;
  double o = 1.0;
  double gate = 1.0;
  double down = 1.0;
  double mixer_input = 1.0;                                 // factor on the input of the mixer
  std::array<double, 5> mixer = {1.0, 1.0, 1.0, 1.0, 1.0};  // z, v, k, q and a of Mamba 2
  double mixer_output = 1.0;
};

// Mixture of experts: a router computes one logit per expert. The scores of the experts are the
// softmax or the sigmoid of the logits; each row passes through the experts with the largest scores
// and is weighted by them. A shared expert, an MLP for every row, may be added.
inline constexpr std::int64_t kMostExpertGroups = 64;
struct ExpertsConfig {
  std::int64_t count = 0;      // experts per layer; 0: no experts
  std::int64_t per_token = 0;  // experts chosen per row
  std::int64_t d_mlp = 0;      // hidden width of one expert
  bool normalized = false;     // scores are divided by the sum over the chosen experts
  bool sigmoid = false;        // scores are sigmoid(logit) instead of the softmax over all experts
  double weight_scale = 1.0;   // multiplies the weights
  // Group-limited routing (arXiv 2412.19437): only experts of the chosen_groups groups with the
  // largest sum of their two highest scores can be chosen.
  std::int64_t groups = 1;
  std::int64_t chosen_groups = 1;
  bool group_maximum = false;     // a group counts by its highest score alone (DeepSeek-V2)
  std::int64_t shared_d_mlp = 0;  // hidden width of the shared expert; 0: none
  bool scales_input = false;      // a weight multiplies the input of its expert, not the output
  bool bias = false;              // expert matrices have a bias
  bool router_bias = false;
};

// Position-dependent scale of queries. Ministral 3 multiplies queries after RoPE by 1 + beta ln(1 +
// floor(position / original_max)); Llama 4 does so on layers without RoPE, with position + 1.
struct QueryScaling {
  double beta = 0.0;
  std::int64_t original_max = 0;
  bool without_rope = false;  // only on layers without RoPE
  std::int64_t shift = 0;     // added to the position
};

// Multi-head latent attention (MLA, arXiv 2405.04434): keys and values are projections of one
// latent vector per token, W_DKV x after an RMSNorm; queries may have a latent too. A head of q and
// k is [not rotated | rotated], and all heads share the rotated part of the key. Layers without
// RoPE (Kimi Linear) have the shared part too.
struct LatentAttention {
  std::int64_t kv_rank = 0;   // width of the latent of keys and values; 0: no latent attention
  std::int64_t q_rank = 0;    // width of the query latent; 0: W_Q projects the layer input
  std::int64_t d_value = 0;   // width of a head of v and z
  double norm_eps = 1e-6;     // of the norms of both latents
  std::int64_t d_shared = 0;  // width of the key part that all heads share
};

// Per-layer inputs (Gemma 4). Token t has one vector for every layer,
//   p = (norm(W_P e / sqrt(d_model)) + sqrt(width) E[t]) / sqrt(2),
// where e is the token embedding and E is a second embedding table with rows of this layer. After
// its MLP, a layer adds norm(W_out (activation(W_gate x) * p)) to the residual stream x.
struct PerLayerInputs {
  std::int64_t width = 0;       // of one vector; 0: the model has no per-layer inputs
  std::int64_t vocab_size = 0;  // rows of the embedding E
};

// Tensor names of a mixture of experts within a layer. "{}" in a name stands for the expert number.
// A name without "{}" is one tensor with all experts, (experts, out, in), stored without ".weight";
// its bias is NAME_bias.
struct ExpertNames {
  std::string router = {};
  std::string selection_bias = {};  // added to the scores for the selection, not for the weights
  // Prefix of the shared expert: PREFIX.gate_proj, .up_proj, .down_proj. If empty, the names
  // of the MLP in TensorNames are used.
  std::string shared = {};
  std::string shared_gate = {};  // its output is multiplied by sigmoid of this projection
  // Prefix of the MLP in layers without experts: PREFIX.gate_proj, .up_proj, .down_proj. If empty,
  // the names of the MLP in TensorNames are used.
  std::string dense = {};
  std::string gate = {};
  std::string up = {};
  std::string gate_up = {};  // replaces gate and up: rows of gate, then of up
  std::string down = {};

  // Layout of tensors with all experts:
  bool bias_has_rows = false;  // selection_bias is stored as (1, experts)
  bool transposed = false;     // stored as (experts, in, out)
  bool interleaved = false;    // rows of gate and up alternate in gate_up
  bool mxfp4 = false;  // NAME_blocks (experts, out, in / 32, 16), NAME_scales (…, in / 32)
};

// Tensor names of a mixer, and of the norms before the mixer and before the MLP of its layer.
// `module` is the prefix of the vectors MODULE.A_log, MODULE.dt_bias and MODULE.D.
struct MixerNames {
  std::string input_norm = "input_layernorm";
  std::string mlp_norm = "post_attention_layernorm";
  std::string module = "linear_attn";
  // Name of the fused input projection, whose rows are z, v, k, q and a (Mamba 2), or k, z and v
  // (short convolution), in this order.
  std::string all = {};
  // Fused matrices: qkvz (q, k, v and the output gate z) and ba (b and a), with rows grouped by
  // key head, or qkv (q, then k, then v). Projections that are not fused have names of their own.
  // Kimi Delta Attention: z and a project the outputs of z_latent and a_latent.
  std::string qkvz = {};
  std::string ba = {};
  std::string qkv = {};
  std::string q = {};
  std::string k = {};
  std::string v = {};
  std::string z = {};
  std::string b = {};
  std::string a = {};
  std::string z_latent = {};
  std::string a_latent = {};
  std::vector<std::string> convolutions = {"linear_attn.conv1d"};  // of q, k and v, one or three
  bool even_convolutions = false;  // the three are equal parts of the one, as torch.chunk splits it
  std::string norm = "linear_attn.norm";  // empty: no norm
  std::string output = "linear_attn.out_proj";
  std::string post_attention_norm = {};  // in layers with attention, replaces that of TensorNames
};

// Tensor names of a checkpoint, relative to the prefix of the language model; names of layer
// tensors are relative to "layers.N.". The suffixes ".weight" and ".bias" are omitted, and an empty
// name means that there is no such tensor. Defaults are those of Llama.
struct TensorNames {
  std::string embedding = "embed_tokens";
  std::string positions;  // learned position embedding
  std::string layers = "layers";
  std::string final_norm = "norm";
  std::string head = "lm_head";  // not below the prefix

  std::string input_norm = "input_layernorm";
  std::string q = "self_attn.q_proj";
  std::string k = "self_attn.k_proj";
  std::string v = "self_attn.v_proj";
  std::string qkv;  // replaces q, k and v: rows of q, then k, then v
  // Latent attention: q projects the query latent, if any, else the layer input. k projects the kv
  // latent to k, then v, of each head: shape (n_heads, d_head - d_shared + d_value, kv_rank).
  std::string q_latent = "self_attn.q_a_proj";
  std::string q_latent_norm = "self_attn.q_a_layernorm";
  std::string kv_latent = "self_attn.kv_a_proj_with_mqa";  // latent, then the shared key part
  std::string kv_latent_norm = "self_attn.kv_a_layernorm";
  std::string q_norm = "self_attn.q_norm";  // empty: norms of q and k have no weight
  std::string k_norm = "self_attn.k_norm";
  // Output gate: z is multiplied by the sigmoid of this projection of the layer input. If the name
  // equals that of q, one matrix holds both, with rows ordered as (head, q / gate, d_head).
  std::string attention_gate;
  std::string o = "self_attn.o_proj";
  std::string post_attention_norm;  // norm of the attention output before the residual addition
  std::string mlp_norm = "post_attention_layernorm";
  std::string gate = "mlp.gate_proj";  // empty without gate_up: the MLP has no gate
  std::string up = "mlp.up_proj";
  std::string gate_up;  // replaces gate and up: rows of gate, then of up
  std::string down = "mlp.down_proj";
  std::string activation = "mlp.act_fn";  // parameters of a learned activation
  std::string post_mlp_norm;              // norm of the MLP output before the residual addition

  std::string sinks;  // (n_heads) learned attention sinks
  // Known naming schemes of expert tensors; a checkpoint uses one of them. Parameter counts use the
  // first scheme, which has no packed (MXFP4) tensors.
  std::vector<ExpertNames> experts;
  std::vector<MixerNames> mixer;  // known naming schemes; a checkpoint uses one of them

  bool qkv_by_head = false;          // rows of qkv are ordered as (head, q / k / v, d_head)
  bool transposed = false;           // matrices of layers are stored as (in, out)
  std::vector<std::string> buffers;  // name suffixes of stored buffers that are no weights
  std::vector<std::string> unused;   // name prefixes of stored weights that no layer uses
};

// Configuration of a model: all parameters of its forward pass.
struct ModelConfig {
  std::string family;    // model_type of the language model, e.g. "smollm3"
  bool wrapped = false;  // part of a multimodal checkpoint
  std::int64_t n_layers = 0;
  std::int64_t d_model = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t d_mlp = 0;
  std::int64_t vocab_size = 0;
  std::int64_t embedding_rows = 0;  // vocab_size, or more if the family has extra rows
  std::int64_t max_positions = 0;
  std::vector<LayerConfig> layers;  // (n_layers)

  NormKind norm = NormKind::rms;
  double norm_eps = 1e-6;
  bool norm_weight = true;       // false: norms have no weight
  bool norm_bias = false;        // norms except those of q and k have a bias
  bool norm_adds_one = false;    // norms multiply by 1 + weight
  bool qk_norm = false;          // RMSNorm over d_head on q and k before RoPE
  bool qk_norm_whole = false;    // the q/k norm spans all heads of a row
  bool rotated_qk_norm = false;  // RMSNorm over d_head on q and k after RoPE, on layers with RoPE
  bool v_norm = false;           // RMSNorm without weight over d_head on v; needs qk_norm
  bool embedding_norm = false;   // the final norm is also applied to the embeddings
  double qkv_clip = 0.0;         // q, k and v are clipped to [-qkv_clip, qkv_clip]; 0: no clipping
  bool parallel_residual = false;  // attention and MLP both read the input of the layer
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  ClampedSwiglu swiglu;  // for Activation::clamped_swiglu
  ExpertsConfig experts;
  MixerConfig mixer;
  ProjectionScales projection_scales;
  PerLayerInputs per_layer;
  bool layer_scalars = false;  // a number multiplies the residual stream after each layer
  double embedding_scale = 1.0;
  double residual_scale = 1.0;     // multiplies the outputs of attention and MLP
  double attention_scale = 0.0;    // multiplies q.k
  double attention_softcap = 0.0;  // scores become cap tanh(score / cap); 0: no cap
  double logit_scale = 1.0;        // multiplies logits before the soft cap
  double logit_softcap = 0.0;      // soft cap of logits; 0: no cap

  std::vector<RopeConfig> ropes;
  bool rope_interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + dim/2)
  bool rope_sorts_pairs =
      false;  // rotation moves interleaved pairs to (i, i + dim/2) (DeepSeek-V3)
  std::optional<QueryScaling> query_scaling;
  LatentAttention latent;

  bool tied = false;  // output and input embedding are shared if the file has no lm_head
  bool fp8 = false;   // weights may be FP8 E4M3 with one scale per tensor
  std::vector<std::int64_t>
      fp8_block;             // rows and columns per FP8 scale; empty: one scale per tensor
  std::string stored_dtype;  // torch_dtype or dtype; "" if config.json has neither
  TensorNames names;

  // Sizes of one layer.
  std::int64_t d_head_of(const LayerConfig& layer) const {
    return layer.d_head > 0 ? layer.d_head : d_head;
  }
  std::int64_t n_kv_heads_of(const LayerConfig& layer) const {
    return layer.n_kv_heads > 0 ? layer.n_kv_heads : n_kv_heads;
  }
  std::int64_t d_value_of(const LayerConfig& layer) const {
    return has_latent_attention() ? latent.d_value : d_head_of(layer);
  }
  std::int64_t d_mlp_of(const LayerConfig& layer) const {
    return layer.d_mlp > 0 ? layer.d_mlp : d_mlp;
  }
  const LayerConfig& layer(std::int64_t number) const {
    return layers[static_cast<std::size_t>(number)];
  }
  // Whether all layers have the same number and size of heads, and none shares keys and values.
  bool has_equal_heads() const {
    for (const auto& layer : layers)
      if (layer.d_head > 0 || layer.n_kv_heads > 0 || layer.shares_kv()) return false;
    return true;
  }

  std::int64_t heads_per_kv_head() const { return n_heads / n_kv_heads; }
  bool gated_mlp() const { return !names.gate.empty() || !names.gate_up.empty(); }
  bool learned_positions() const { return !names.positions.empty(); }
  bool has_sinks() const { return !names.sinks.empty(); }
  bool has_attention_gate() const { return !names.attention_gate.empty(); }
  // Whether the output of RoPE holds each rotated pair in dimensions (2i, 2i+1).
  bool rotated_pairs_interleaved() const { return rope_interleaved && !rope_sorts_pairs; }
  bool has_latent_attention() const { return latent.kv_rank > 0; }
  std::int64_t d_value() const { return has_latent_attention() ? latent.d_value : d_head; }
  // Whether some layers have a recurrent mixer, which keeps a state instead of keys and values.
  bool has_recurrence() const { return mixer.kind != Mixer::attention; }
  double score_scale(std::int64_t layer) const {
    return attention_scale * layers[static_cast<std::size_t>(layer)].score_scale;
  }
  const RopeConfig* rope(std::int64_t layer) const {
    const int index = layers[static_cast<std::size_t>(layer)].rope;
    return index < 0 ? nullptr : &ropes[static_cast<std::size_t>(index)];
  }
};

// Reads the configuration of a checkpoint folder in Hugging Face layout; needs no weights.
QKSCOPE_API ModelConfig read_model_config(const std::string& folder);

// Returns the number of parameters of the language model. A tied output embedding counts once; the
// vision part of a multimodal checkpoint does not count.
QKSCOPE_API std::int64_t parameter_count(const ModelConfig& model);

// Returns the activation memory of a CPU batch of `rows` tokens in bytes, without the weights.
QKSCOPE_API std::int64_t cpu_activation_bytes(const ModelConfig& model, std::int64_t rows);

// A tensor as stored in a checkpoint.
struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string stored_dtype;  // type name in the file, e.g. "BF16"
  std::string file;          // file name within the checkpoint folder
};

// Contents of a checkpoint folder.
struct CheckpointInfo {
  ModelConfig config;
  bool has_weights = false;
  std::vector<TensorInfo> tensors;   // sorted by name; empty without weights
  std::uint64_t bytes = 0;           // total size of the tensors; 0 without weights
  std::uint64_t widened_bytes = 0;   // additional memory of block-scaled tensors as float32
  std::int64_t indexed_tensors = 0;  // tensors in the index of shards, if there are no weights
};

// Inspects a checkpoint without running it. Throws a bad-input error if the weights, or the names
// in the index of shards if there are no weights, do not match the configuration.
QKSCOPE_API CheckpointInfo inspect_checkpoint(const std::string& folder);

// A supported model family.
struct ModelFamily {
  std::string_view model_type;  // model_type in config.json, e.g. "gpt_neox"
  std::string_view models;      // common names, e.g. "GPT-NeoX, Pythia"
};
// Returns all supported families.
QKSCOPE_API std::vector<ModelFamily> model_families();

// A weight matrix as a view into its checkpoint, in the stored type.
struct WeightMatrix {
  // Shape (out, in), or (blocks, out / blocks, in) if the rows are interleaved with those of other
  // matrices. Matrices stored as (in, out) have transposed strides.
  ConstTensorView values;
  float scale = 1.0f;  // multiplies every value: of FP8, or one of ProjectionScales
  // MXFP4 only: E8M0 scales (out, in / 32), one power of two per 32 values. `values` then holds
  // bytes (out, in / 2) with two 4-bit numbers (E2M1) each, the low bits first.
  ConstTensorView block_scales = {};

  bool is_mxfp4() const { return !block_scales.empty(); }
  bool in_blocks() const { return values.rank() == 3; }
  std::int64_t out() const { return in_blocks() ? values.dim(0) * values.dim(1) : values.dim(0); }
  std::int64_t in() const { return values.dim(values.rank() - 1) * (is_mxfp4() ? 2 : 1); }
  std::int64_t size() const { return out() * in(); }
  bool transposed() const { return values.rank() == 2 && values.stride(1) != 1; }
  // Returns the offset in elements of row r from the first value.
  std::int64_t row_offset(std::int64_t r) const {
    if (!in_blocks()) return r * values.stride(0);
    return r / values.dim(1) * values.stride(0) + r % values.dim(1) * values.stride(1);
  }
};

// Returns the matrix as contiguous float32 (out, in) with the scale applied.
QKSCOPE_API Tensor to_float32(const WeightMatrix& matrix);

// A linear layer y = x weightᵀ + bias.
struct Linear {
  WeightMatrix weight;
  std::vector<float> bias;  // (out) or empty
};

// Weights of an RMSNorm or LayerNorm.
struct NormWeights {
  std::vector<float> weight;  // (n); empty: no such norm
  std::vector<float> bias;    // (n) or empty

  bool empty() const { return weight.empty(); }
};

// xIELU (arXiv 2411.13010): alpha_p x² + beta x for x > 0, else alpha_n (exp(min(x, eps)) - 1 - x)
// + beta x.
struct XieluWeights {
  float alpha_p = 0.0f;
  float alpha_n = 0.0f;
  float beta = 0.0f;
  float eps = 0.0f;
};

// Weights of one expert.
struct ExpertWeights {
  Linear gate;  // (d_mlp, d_model)
  Linear up;    // (d_mlp, d_model)
  Linear down;  // (d_model, d_mlp)
};

// Weights of the latent projections of multi-head latent attention (MLA).
struct LatentWeights {
  Linear q;             // (q_rank, d_model) or empty
  NormWeights q_norm;   // (q_rank) or empty
  Linear kv;            // (kv_rank, d_model)
  NormWeights kv_norm;  // (kv_rank)
  Linear rotated_key;   // (d_shared, d_model), shared by all heads
};

// Weights of a mixer; see MixerConfig. Weights that a kind of mixer does not have are empty.
struct MixerWeights {
  Linear q;                             // (key_heads * d_key, d_model)
  Linear k;                             // (key_heads * d_key, d_model); short convolution: as v
  Linear v;                             // (value_heads * d_value, d_model)
  Linear z_latent;                      // (d_value, d_model) or empty
  Linear z;                             // (value_heads * d_value, d_model or d_value)
  Linear b;                             // (value_heads, d_model)
  Linear a_latent;                      // (d_key, d_model) or empty
  Linear a;                             // (decays, d_model or d_key)
  std::vector<float> convolution;       // (taps, channels) of q, then k, then v
  std::vector<float> convolution_bias;  // (channels) or empty
  std::vector<float> a_log;             // (value_heads)
  std::vector<float> dt_bias;           // (decays)
  std::vector<float> skip;              // (value_heads): D of Mamba 2
  std::vector<float> norm;  // (d_value), or (value_heads * d_value) of Mamba 2; or empty
  Linear output;            // (d_model, value_heads * d_value)
};

// Weights of one layer. A layer without attention has empty attention weights. With latent
// attention, k has shape (n_heads * (d_head - d_shared), kv_rank).
struct LayerWeights {
  NormWeights input_norm;              // (d_model) or empty
  LatentWeights latent;                // empty without latent attention
  Linear q;                            // (n_heads * d_head, d_model or q_rank)
  Linear k;                            // (n_kv_heads * d_head, d_model)
  Linear v;                            // (n_kv_heads * d_value, d_model or kv_rank)
  NormWeights q_norm;                  // (d_head), (n_heads * d_head) or empty
  NormWeights k_norm;                  // (d_head), (n_kv_heads * d_head) or empty
  std::vector<float> sinks;            // (n_heads) or empty
  Linear attention_gate;               // (n_heads * d_head, d_model) or empty
  Linear o;                            // (d_model, n_heads * d_value)
  NormWeights post_attention_norm;     // (d_model) or empty
  NormWeights mlp_norm;                // (d_model) or empty
  Linear gate;                         // (d_mlp, d_model) or empty; in a MoE, the shared expert's
  Linear up;                           // (d_mlp, d_model) or empty; in a MoE, the shared expert's
  XieluWeights xielu;                  // only for Activation::xielu
  Linear down;                         // (d_model, d_mlp) or empty; in a MoE, the shared expert's
  Linear shared_gate;                  // (1, d_model) or empty
  Linear router;                       // (experts, d_model) or empty
  std::vector<float> selection_bias;   // (experts) or empty
  std::vector<ExpertWeights> experts;  // empty without a mixture of experts
  NormWeights post_mlp_norm;           // (d_model) or empty
  MixerWeights mixer;                  // only in layers with such a mixer
  NormWeights v_norm;                  // (d_head), all 1; or empty
  Linear per_layer_gate;               // (per_layer.width, d_model) or empty
  Linear per_layer_output;             // (d_model, per_layer.width) or empty
  NormWeights post_per_layer_norm;     // (d_model) or empty
  float scalar = 1.0f;                 // multiplies the residual stream after the layer
};

// All weights of a model.
struct ModelWeights {
  WeightMatrix embedding;            // (embedding_rows, d_model)
  WeightMatrix positions;            // (max_positions, d_model) or empty
  std::vector<LayerWeights> layers;  // (n_layers); empty fields on cross-attention layers
  NormWeights final_norm;            // (d_model)
  Linear head;                       // (vocab_size, d_model); has a bias after norms were folded
  // Per-layer inputs, or empty:
  WeightMatrix per_layer_embedding;  // (per_layer.vocab_size, n_layers * per_layer.width)
  Linear per_layer_projection;       // (n_layers * per_layer.width, d_model)
  NormWeights per_layer_norm;        // (per_layer.width)
};

// A tensor to write under a name.
struct NamedTensor {
  std::string name;
  ConstTensorView tensor;  // contiguous, in host memory
};

// Atomically writes a safetensors file. Tensors keep the given order and the data starts at a
// multiple of 64 bytes. Names must be unique.
QKSCOPE_API void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                                   const std::map<std::string, std::string>& metadata = {});

struct Batch;           // qkscope/forward.h
class Observer;         // qkscope/forward.h
struct RunOptions;      // qkscope/forward.h
class LayerStatistics;  // internal

// Options of Model::load.
struct ModelOptions {
  std::string revision = {};    // branch, tag or commit of a Hub model; "": main
  std::string device = "auto";  // auto, cpu, cuda or cuda:N
  std::string dtype =
      {};  // CUDA compute type float32, float16 or bfloat16; "": type of the checkpoint
  std::string config_overrides = {};  // JSON object merged into config.json; "": none
  std::int64_t device_memory = 0;     // CUDA bytes to use at most; 0: all free memory
  std::int64_t longest_batch = 0;     // rows, 0 if unknown; CUDA streams weights that do not fit
                                      // beside the activations of such a batch
  bool fold_norms = false;            // move norm weights into the following matrices
  // Further weight rewrites known from TransformerLens, applied after fold_norms. Next-token
  // probabilities do not change. Throws a bad-input error if the family does not allow a rewrite.
  bool center_writing_weights =
      false;  // subtract the mean of everything written to the residual stream (LayerNorm)
  bool center_unembed = false;     // subtract the mean over the vocabulary from the logits
  bool fold_value_biases = false;  // move value biases into the bias of the output projection
  bool quiet = false;              // do not show download progress
};

// A checkpoint ready to run on one device. Weights are mapped from the files; views into them are
// valid while the model exists.
class QKSCOPE_API Model {
 public:
  // Loads a folder in Hugging Face layout, or a model id of the Hub, which is downloaded into the
  // Hub cache if needed.
  static Model load(const std::string& folder_or_id, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelConfig& config() const;
  const ModelWeights& weights() const;
  const std::string& folder() const;  // checkpoint folder, for Tokenizer::load
  Device device() const;
  DType dtype() const;  // CUDA type of weights and activations; the CPU computes in float32

  // Runs one forward pass; the observer reads or edits the activations it wants. Stops after the
  // last wanted stage, and runs the end of the network only for the wanted rows. Sequences do not
  // attend to each other; on the CPU the results of each sequence are bit-identical to those of a
  // separate run. Threads may share a model; on CUDA their passes run one at a time. Exceptions of
  // the observer are passed through unchanged.
  void run(const Batch& batch, Observer& observer) const;
  void run(const Batch& batch, Observer& observer, const RunOptions& options) const;
  // Runs a pass through all layers and accumulates statistics, for score_heads().
  void run(const Batch& batch, Observer& observer, LayerStatistics& statistics) const;

 private:
  friend class KeyValueCache;  // qkscope/experimental/generate.h
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
