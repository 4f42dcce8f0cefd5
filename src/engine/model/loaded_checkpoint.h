// A loaded checkpoint: configuration, names and shapes of tensors, and weights as views of files.
#pragma once

#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "engine/model/model_config.h"
#include "input/checkpoint/checkpoint.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct LoadedCheckpoint {
  Checkpoint checkpoint;  // owns the mapped files
  ModelConfig config;
  ModelWeights weights;
  std::vector<Tensor> folded = {};  // float32 copies of weights that were rewritten after loading
};

// Loads a checkpoint folder in Hugging Face layout, or a GGUF file.
LoadedCheckpoint load_unprocessed_checkpoint(const std::string& folder);
// Loads a checkpoint after merging `overrides` (null or an object) into its config.json.
LoadedCheckpoint load_unprocessed_checkpoint(const std::string& folder, const Json& overrides);

// Checks tensor names and shapes and binds the weights. Matrices stay views of the mapped file;
// norm weights (plus 1 for norms that multiply by 1 + weight) and biases become float32.
ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint);

// Checks names, shapes and types against the configuration without reading weights. Returns the
// bytes that block-scaled tensors will occupy as float32 in addition to the files.
std::uint64_t check_tensors_and_count_widened_bytes(const ModelConfig& model,
                                                    const Checkpoint& checkpoint);

// TransformerLens weight rewrites that preserve next-token probabilities. They edit float32 copies
// that the model owns, and throw a bad-input error if probabilities would change.

// Moves norm weights into the matrices that read the normalised vectors: q, k, v, gate, up, router,
// experts and output embedding. The norms then multiply by one. Matrices that read a LayerNorm are
// also centred, as in TransformerLens. Norms of q, k and block outputs are not folded.
void fold_norms(LoadedCheckpoint& model);

// Subtracts the mean from everything that embeddings, attention and MLP write into the residual
// stream. Requires LayerNorm, which removes the mean anyway.
void center_writing_weights(LoadedCheckpoint& model);

// Subtracts the mean over the vocabulary from the output embedding.
void center_unembed(LoadedCheckpoint& model);

// Moves value biases into the output bias. This is exact, as attention weights sum to one.
void fold_value_biases(LoadedCheckpoint& model);

struct TensorSpec {
  std::string name;  // without the language model's prefix: "layers.3.self_attn.q_proj.weight"
  Shape shape;
};

// Returns the tensor name of the token embedding, without the language model's prefix.
std::string embedding_tensor_name(const ModelConfig& model);

// Naming scheme of the language model's tensors in a checkpoint.
struct TensorNaming {
  std::string backbone = {};  // "model.", "language_model.model.", ...
  std::string head = {};      // full name of the output embedding; "" if it is tied and not stored
  ExpertNames experts = {};   // naming of the expert tensors, for models with experts
  MixerNames mixer = {};      // naming of mixers other than attention, for models with such layers
};

// Returns the expected tensors in forward order, named without the prefix and without those of
// cross-attention layers, which are not loaded. Default naming: that of published checkpoints.
std::vector<TensorSpec> expected_tensors(const ModelConfig& model);
std::vector<TensorSpec> expected_tensors(const ModelConfig& model, const TensorNaming& naming);

// expert_tensor_name() puts an expert number into a name pattern. is_stacked_tensor_name() is true
// for a pattern without a placeholder, which names one tensor with all experts.
std::string expert_tensor_name(const std::string& name, std::int64_t expert);
bool is_stacked_tensor_name(const std::string& name);

// Throws a bad-input error unless `names` contains every tensor of the model and no other tensor
// under the language model's prefix. Returns the naming scheme of the tensors.
TensorNaming detect_tensor_naming(const ModelConfig& model, const std::vector<std::string>& names,
                                  const std::string& where);

}  // namespace qkscope
