// What a model is: its configuration and weights as data, and Model, a checkpoint that is ready to
// run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

enum class Activation { silu, gelu_tanh, gelu };

struct LayerConfig {
  bool cross_attention = false;  // mllama: needs an image, skipped for text
  std::int64_t window = 0;       // keys a query sees, itself included; 0: all before it
  int rope = 0;                  // index into ModelConfig::ropes; -1: no position embedding (NoPE)
};

// Ministral 3: after RoPE the query is multiplied by 1 + beta ln(1 + floor(position /
// original_max)).
struct QueryScaling {
  double beta = 0.0;
  std::int64_t original_max = 0;
};

// Where a family keeps its norms and gate under other names than Llama. Empty: not there.
struct TensorNames {
  std::string mlp_norm = "post_attention_layernorm";
  std::string post_attention_norm;  // on the attention's output, before it is added
  std::string post_mlp_norm;        // on the MLP's output, before it is added
  bool fused_gate_up = false;       // mlp.gate_up_proj: gate rows, then up rows
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

  double norm_eps = 1e-6;
  bool norm_adds_one = false;  // RMSNorm multiplies by 1 + weight
  bool qk_norm = false;        // RMSNorm over d_head on q and k before RoPE
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  double embedding_scale = 1.0;
  double attention_scale = 0.0;  // multiplies q.k
  double logit_softcap = 0.0;    // 0: none

  std::vector<RopeConfig> ropes;
  bool rope_interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + dim/2)
  std::optional<QueryScaling> query_scaling;

  bool tied = false;  // the output embedding is the input embedding when the file has no lm_head
  bool fp8 = false;   // weights may be E4M3 with a scale each
  std::string stored_dtype;  // torch_dtype or dtype, "" when the file does not say
  TensorNames names;

  std::int64_t heads_per_kv_head() const { return n_heads / n_kv_heads; }
  const RopeConfig* rope(std::int64_t layer) const {
    const int index = layers[static_cast<std::size_t>(layer)].rope;
    return index < 0 ? nullptr : &ropes[static_cast<std::size_t>(index)];
  }
};

// The configuration of a checkpoint: a folder in Hugging Face layout with a config.json. Weights
// are neither needed nor looked at.
QKSCOPE_API ModelConfig read_model_config(const std::string& folder,
                                          Version headers = kHeaderVersion);

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
  std::int64_t indexed_tensors = 0;  // without weights: tensors that the index of shards names
};

// Looks at a checkpoint without running it. Weights, or the names in the index of shards where
// there is nothing else, must be those that the configuration asks for.
QKSCOPE_API CheckpointInfo inspect_checkpoint(const std::string& folder,
                                              Version headers = kHeaderVersion);

// The weights of a model as views into its checkpoint, in the checkpoint's own element type.
struct WeightMatrix {
  ConstTensorView values;  // (out, in)
  float scale = 1.0f;      // multiplies every value; not 1 for FP8 only
};

struct Linear {
  WeightMatrix weight;
  std::vector<float> bias;  // (out) or empty
};

struct LayerWeights {
  std::vector<float> input_norm;           // (d_model)
  Linear q;                                // (n_heads * d_head, d_model)
  Linear k;                                // (n_kv_heads * d_head, d_model)
  Linear v;                                // (n_kv_heads * d_head, d_model)
  std::vector<float> q_norm;               // (d_head) or empty
  std::vector<float> k_norm;               // (d_head) or empty
  Linear o;                                // (d_model, n_heads * d_head)
  std::vector<float> post_attention_norm;  // (d_model) or empty
  std::vector<float> mlp_norm;             // (d_model)
  Linear gate;                             // (d_mlp, d_model)
  Linear up;                               // (d_mlp, d_model)
  Linear down;                             // (d_model, d_mlp)
  std::vector<float> post_mlp_norm;        // (d_model) or empty
};

struct ModelWeights {
  WeightMatrix embedding;            // (embedding_rows, d_model)
  std::vector<LayerWeights> layers;  // (n_layers); empty fields on cross-attention layers
  std::vector<float> final_norm;     // (d_model)
  WeightMatrix head;                 // (vocab_size, d_model)
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

struct Batch;    // qkscope/forward.h
class Observer;  // qkscope/forward.h

struct ModelOptions {
  std::string revision = {};    // branch, tag or commit of a Hub model; "": main
  std::string device = "auto";  // auto, cpu, cuda or cuda:N
  std::string dtype = {};       // on CUDA: float32, float16 or bfloat16; "": the checkpoint's own
  std::string config_overrides = {};  // a JSON object merged into config.json; "": none
  std::int64_t device_memory = 0;     // bytes that may be taken on CUDA; 0: what is free
  std::int64_t longest_batch = 0;     // rows, where known: weights stream on CUDA where they do not
                                      // fit beside the activations of such a batch
  bool fold_norms = false;            // moves norm weights into the matrices behind them
  bool quiet = false;                 // no progress while a Hub model is downloaded
};

// A checkpoint that is ready to run, on the device it was loaded for. Weights are mapped from the
// files; views into them live as long as the model.
class QKSCOPE_API Model {
 public:
  // A folder in Hugging Face layout, or the id of a model on the Hub, which is downloaded into the
  // Hub's cache where it is not there yet.
  static Model load(const std::string& folder_or_id, const ModelOptions& options = {},
                    Version headers = kHeaderVersion);
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

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
