// What a model is: its configuration and weights as data, and Model, a checkpoint that is ready to
// run.
#pragma once

#include <cstdint>
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

// Rotary position embedding, as a configuration gives it.
enum class RopeType { standard, linear, dynamic, yarn, llama3, longrope };

struct RopeConfig {
  RopeType type = RopeType::standard;
  double theta = 10000.0;
  std::int64_t dim = 0;            // rotated part of the head, even
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
};

QKSCOPE_API std::string rope_type_name(RopeType type);  // "default", "yarn", ...

struct RopeFrequencies {
  std::vector<float> inverse;     // (dim / 2), radians per position
  float attention_factor = 1.0f;  // multiplies cos and sin
};

// The frequencies for a sequence of `length` tokens; only dynamic and longrope depend on it.
// float32 arithmetic in the order transformers uses.
QKSCOPE_API RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t length);

enum class Activation { silu, gelu_tanh, gelu, xielu, clamped_swiglu };

// gpt-oss: (min(max(up, -limit), limit) + 1) g / (1 + exp(-alpha g)), where g = min(gate, limit).
struct ClampedSwiglu {
  float alpha = 1.702f;
  float limit = 7.0f;
};

// RMSNorm divides by the root of the mean square; LayerNorm takes off the mean before.
enum class NormKind { rms, layer };

struct LayerConfig {
  bool cross_attention = false;  // mllama: needs an image, skipped for text
  std::int64_t window = 0;       // keys a query sees, itself included; 0: all before it
  int rope = 0;                  // index into ModelConfig::ropes; -1: none (NoPE)
  double score_scale = 1.0;      // multiplies q.k on top of ModelConfig::attention_scale
  bool experts = false;          // the MLP is a mixture of experts, see ExpertsConfig
};

// A mixture of experts: a router gives each row a logit for every expert, and the row goes through
// those with the highest. Expert e counts with the softmax of the logits at e: over all experts, or
// over the chosen ones alone.
struct ExpertsConfig {
  std::int64_t count = 0;      // in a layer that has them; 0: the model has none
  std::int64_t per_token = 0;  // chosen for a row
  std::int64_t d_mlp = 0;      // width of one
  bool normalized = false;     // the weights of the chosen ones sum to one
  bool bias = false;           // their matrices have one
  bool router_bias = false;
};

// Ministral 3: after RoPE the query is multiplied by 1 + beta ln(1 + floor(position /
// original_max)).
struct QueryScaling {
  double beta = 0.0;
  std::int64_t original_max = 0;
};

// Where a layer with a mixture of experts keeps it. In a name that holds "{}" that is the number of
// an expert. A name without it is one tensor of all experts, (experts, out, in), which has no
// ".weight"; its biases are NAME_bias.
struct ExpertNames {
  std::string router = {};
  std::string gate = {};
  std::string up = {};
  std::string gate_up = {};  // in place of the two: rows of gate, then up
  std::string down = {};

  // Of tensors that hold all experts:
  bool transposed = false;   // they are (experts, in, out)
  bool interleaved = false;  // gate_up has a row of gate, then one of up, and so on
  bool mxfp4 = false;        // NAME_blocks (experts, out, in / 32, 16), NAME_scales (…, in / 32)
};

// Where a checkpoint keeps its tensors: names below the language model's prefix, and those of a
// layer below "layers.N.", without ".weight" and ".bias". Empty: not there. Llama's are the
// default.
struct TensorNames {
  std::string embedding = "embed_tokens";
  std::string positions;  // a learned embedding of positions
  std::string layers = "layers";
  std::string final_norm = "norm";
  std::string head = "lm_head";  // beside the prefix, not below it

  std::string input_norm = "input_layernorm";
  std::string q = "self_attn.q_proj";
  std::string k = "self_attn.k_proj";
  std::string v = "self_attn.v_proj";
  std::string qkv;  // in place of the three: rows of q, then k, then v
  std::string q_norm = "self_attn.q_norm";
  std::string k_norm = "self_attn.k_norm";
  std::string o = "self_attn.o_proj";
  std::string post_attention_norm;  // on the attention's output, before it is added
  std::string mlp_norm = "post_attention_layernorm";
  std::string gate = "mlp.gate_proj";  // empty, and no gate_up: the MLP has no gate
  std::string up = "mlp.up_proj";
  std::string gate_up;  // in place of the two: rows of gate, then up
  std::string down = "mlp.down_proj";
  std::string activation = "mlp.act_fn";  // of an activation with weights
  std::string post_mlp_norm;              // on the MLP's output, before it is added

  std::string sinks;  // (n_heads) a logit that joins the softmax of every query of a head
  // Every spelling that is known; a checkpoint has one of them. The first stores every number as
  // an element: sizes are counted by it.
  std::vector<ExpertNames> experts;

  bool qkv_by_head = false;  // qkv holds q, k and v of the first head, then of the second, ...
  bool transposed = false;   // matrices of layers are stored (in, out)
  std::vector<std::string> buffers;  // ends of names that are stored but are no weights
};

struct ModelConfig {
  std::string family;    // model_type of the language model: "smollm3"
  bool wrapped = false;  // a multimodal checkpoint whose language model is used
  std::int64_t n_layers = 0;
  std::int64_t d_model = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t d_mlp = 0;
  std::int64_t vocab_size = 0;
  std::int64_t embedding_rows = 0;  // vocab_size, or more where the family has extra rows
  std::int64_t max_positions = 0;
  std::vector<LayerConfig> layers;  // (n_layers)

  NormKind norm = NormKind::rms;
  double norm_eps = 1e-6;
  bool norm_weight = true;         // false: norms multiply by one
  bool norm_bias = false;          // norms other than those of q and k add one
  bool norm_adds_one = false;      // norms multiply by 1 + weight
  bool qk_norm = false;            // RMSNorm over d_head on q and k before RoPE
  bool qk_norm_whole = false;      // that norm runs over all heads of a row together
  double qkv_clip = 0.0;           // q, k and v are clipped to [-qkv_clip, qkv_clip]; 0: not
  bool parallel_residual = false;  // the MLP reads what entered the layer, not what attention made
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  ClampedSwiglu swiglu;  // where that is the activation
  ExpertsConfig experts;
  double embedding_scale = 1.0;
  double residual_scale = 1.0;     // multiplies what attention and MLP add
  double attention_scale = 0.0;    // multiplies q.k
  double attention_softcap = 0.0;  // scores become cap tanh(score / cap); 0: not
  double logit_scale = 1.0;        // multiplies logits, before their cap
  double logit_softcap = 0.0;      // 0: none

  std::vector<RopeConfig> ropes;
  bool rope_interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + dim/2)
  std::optional<QueryScaling> query_scaling;

  bool tied = false;  // the output embedding is the input embedding when the file has no lm_head
  bool fp8 = false;   // weights may be E4M3 with a scale each
  std::vector<std::int64_t> fp8_block;  // or one for each block of so many rows and columns
  std::string stored_dtype;             // torch_dtype or dtype, "" when the file does not say
  TensorNames names;

  std::int64_t heads_per_kv_head() const { return n_heads / n_kv_heads; }
  bool gated_mlp() const { return !names.gate.empty() || !names.gate_up.empty(); }
  bool learned_positions() const { return !names.positions.empty(); }
  bool has_sinks() const { return !names.sinks.empty(); }
  double score_scale(std::int64_t layer) const {
    return attention_scale * layers[static_cast<std::size_t>(layer)].score_scale;
  }
  const RopeConfig* rope(std::int64_t layer) const {
    const int index = layers[static_cast<std::size_t>(layer)].rope;
    return index < 0 ? nullptr : &ropes[static_cast<std::size_t>(index)];
  }
};

// The configuration of a checkpoint: a folder in Hugging Face layout with a config.json. Weights
// are neither needed nor looked at.
QKSCOPE_API ModelConfig read_model_config(const std::string& folder);

// Numbers that the language model is made of. A tied output embedding counts once; the image part
// of a multimodal checkpoint does not count.
QKSCOPE_API std::int64_t parameter_count(const ModelConfig& model);

// Bytes of activations that a batch of this many rows (tokens) needs on the CPU, on top of the
// weights.
QKSCOPE_API std::int64_t cpu_activation_bytes(const ModelConfig& model, std::int64_t rows);

// A tensor as a checkpoint stores it.
struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string stored_dtype;  // as the file spells it: "BF16"
  std::string file;          // within the checkpoint's folder
};

// What a checkpoint's folder holds.
struct CheckpointInfo {
  ModelConfig config;
  bool has_weights = false;
  std::vector<TensorInfo> tensors;   // sorted by name; empty without weights
  std::uint64_t bytes = 0;           // of all tensors, each counted once; 0 without weights
  std::uint64_t widened_bytes = 0;   // of memory that blocks with scales take as float32
  std::int64_t indexed_tensors = 0;  // without weights: tensors that the index of shards names
};

// Looks at a checkpoint without running it. Weights, or the names in the index of shards where
// there is nothing else, must be those that the configuration asks for.
QKSCOPE_API CheckpointInfo inspect_checkpoint(const std::string& folder);

// The families of models that can be read.
struct ModelFamily {
  std::string_view model_type;  // of the language model's configuration: "gpt_neox"
  std::string_view models;      // that are known by it: "GPT-NeoX, Pythia"
};
QKSCOPE_API std::vector<ModelFamily> model_families();

// The weights of a model as views into its checkpoint, in the checkpoint's own element type.
struct WeightMatrix {
  // (out, in), or (blocks, out / blocks, in) where the rows of other matrices lie between its own.
  // What a checkpoint stores as (in, out) has the strides of the transpose.
  ConstTensorView values;
  float scale = 1.0f;  // multiplies every value; not 1 for FP8 only
  // MXFP4: `values` are bytes (out, in / 2), each two numbers of four bits (E2M1), the low ones
  // first; every 32 of a row have a power of two here, (out, in / 32) of E8M0. Else empty.
  ConstTensorView block_scales = {};

  bool is_mxfp4() const { return !block_scales.empty(); }
  bool in_blocks() const { return values.rank() == 3; }
  std::int64_t out() const { return in_blocks() ? values.dim(0) * values.dim(1) : values.dim(0); }
  std::int64_t in() const { return values.dim(values.rank() - 1) * (is_mxfp4() ? 2 : 1); }
  std::int64_t size() const { return out() * in(); }
  bool transposed() const { return values.rank() == 2 && values.stride(1) != 1; }
  // Elements from the first value of the matrix to the first of row r.
  std::int64_t row_offset(std::int64_t r) const {
    if (!in_blocks()) return r * values.stride(0);
    return r / values.dim(1) * values.stride(0) + r % values.dim(1) * values.stride(1);
  }
};

// (out, in) in float32, contiguous, with the scale.
QKSCOPE_API Tensor to_float32(const WeightMatrix& matrix);

struct Linear {
  WeightMatrix weight;
  std::vector<float> bias;  // (out) or empty
};

struct NormWeights {
  std::vector<float> weight;  // (n); empty: there is no such norm
  std::vector<float> bias;    // (n) or empty

  bool empty() const { return weight.empty(); }
};

// xIELU (arXiv 2411.13010): alpha_p x² + beta x above 0, else
// alpha_n (exp(min(x, eps)) - 1 - x) + beta x.
struct XieluWeights {
  float alpha_p = 0.0f;
  float alpha_n = 0.0f;
  float beta = 0.0f;
  float eps = 0.0f;
};

// One of a mixture of experts.
struct ExpertWeights {
  Linear gate;  // (d_mlp, d_model)
  Linear up;    // (d_mlp, d_model)
  Linear down;  // (d_model, d_mlp)
};

struct LayerWeights {
  NormWeights input_norm;              // (d_model) or empty
  Linear q;                            // (n_heads * d_head, d_model)
  Linear k;                            // (n_kv_heads * d_head, d_model)
  Linear v;                            // (n_kv_heads * d_head, d_model)
  NormWeights q_norm;                  // (d_head), (n_heads * d_head) or empty
  NormWeights k_norm;                  // (d_head), (n_kv_heads * d_head) or empty
  std::vector<float> sinks;            // (n_heads) or empty
  Linear o;                            // (d_model, n_heads * d_head)
  NormWeights post_attention_norm;     // (d_model) or empty
  NormWeights mlp_norm;                // (d_model) or empty
  Linear gate;                         // (d_mlp, d_model); empty where the MLP has no gate
  Linear up;                           // (d_mlp, d_model); empty in a mixture of experts
  XieluWeights xielu;                  // where that is the activation
  Linear down;                         // (d_model, d_mlp); empty in a mixture of experts
  Linear router;                       // (experts, d_model) or empty
  std::vector<ExpertWeights> experts;  // empty where the MLP is one
  NormWeights post_mlp_norm;           // (d_model) or empty
};

struct ModelWeights {
  WeightMatrix embedding;            // (embedding_rows, d_model)
  WeightMatrix positions;            // (max_positions, d_model) or empty
  std::vector<LayerWeights> layers;  // (n_layers); empty fields on cross-attention layers
  NormWeights final_norm;            // (d_model)
  Linear head;                       // (vocab_size, d_model); a bias once norms were folded
};

// A tensor to write, under a name.
struct NamedTensor {
  std::string name;
  ConstTensorView tensor;  // contiguous, in host memory
};

// Writes a safetensors file, which appears whole or not at all. Tensors lie in the given order; the
// data section starts at a multiple of 64 bytes. Names must differ; metadata is any text by key.
QKSCOPE_API void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                                   const std::map<std::string, std::string>& metadata = {});

struct Batch;           // qkscope/forward.h
class Observer;         // qkscope/forward.h
struct RunOptions;      // qkscope/forward.h
class LayerStatistics;  // the library's own

struct ModelOptions {
  std::string revision = {};    // branch, tag or commit of a Hub model; "": main
  std::string device = "auto";  // auto, cpu, cuda or cuda:N
  std::string dtype = {};       // on CUDA: float32, float16 or bfloat16; "": the checkpoint's own
  std::string config_overrides = {};  // a JSON object merged into config.json; "": none
  std::int64_t device_memory = 0;     // bytes that may be taken on CUDA; 0: what is free
  std::int64_t longest_batch = 0;     // rows, where known: weights stream on CUDA where they do not
                                      // fit beside the activations of such a batch
  bool fold_norms = false;            // moves norm weights into the matrices behind them
  // The other rewritings of TransformerLens, after it; probabilities of the next token stay as they
  // are. One that a family does not allow is refused.
  bool center_writing_weights = false;  // LayerNorm: nothing writes a mean into the residual stream
  bool center_unembed = false;          // takes the mean over the vocabulary off the logits
  bool fold_value_biases = false;       // moves value biases into the output projection's
  bool quiet = false;                   // no progress while a Hub model is downloaded
};

// A checkpoint that is ready to run, on the device it was loaded for. Weights are mapped from the
// files; views into them live as long as the model.
class QKSCOPE_API Model {
 public:
  // A folder in Hugging Face layout, or the id of a model on the Hub, which is downloaded into the
  // Hub's cache where it is not there yet.
  static Model load(const std::string& folder_or_id, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelConfig& config() const;
  const ModelWeights& weights() const;
  const std::string& folder() const;  // for Tokenizer::load
  Device device() const;
  DType dtype() const;  // of weights and activations on CUDA; the CPU computes in float32

  // One forward pass; the observer sees and edits what it wants. Stops after the last wanted stage,
  // and runs the end of the network only for the rows that are wanted. Sequences of a batch do not
  // see each other; on the CPU each gives bit for bit what it gives alone. Threads may run one
  // model at the same time; on CUDA one waits for the other. What the observer throws comes out as
  // it is.
  void run(const Batch& batch, Observer& observer) const;
  void run(const Batch& batch, Observer& observer, const RunOptions& options) const;
  // The same through all layers, with sums that the library adds up on the way: score_heads().
  void run(const Batch& batch, Observer& observer, LayerStatistics& statistics) const;

 private:
  friend class KeyValueCache;  // qkscope/experimental/generate.h
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
