// Names and shapes of all tensors of a model, known before any weight is read.
#pragma once

#include <string>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Expected name and shape of one tensor.
struct TensorSpec {
  std::string name;  // without the language model's prefix: "layers.3.self_attn.q_proj.weight"
  Shape shape;
};

// Returns the name of the token embedding without the prefix.
std::string embedding_name(const ModelConfig& model);

// Returns all tensors below the prefix in forward order; cross-attention layers have none. Without
// `experts`, experts are named as in the published checkpoints.
std::vector<TensorSpec> tensor_table(const ModelConfig& model);
std::vector<TensorSpec> tensor_table(const ModelConfig& model, const ExpertNames& experts);

// How a checkpoint names the tensors of the language model.
struct TensorPrefix {
  std::string backbone;  // "model.", "language_model.model.", ...
  std::string head;      // full name of the output embedding; "" if it is tied and not stored
  ExpertNames experts;   // naming of the expert tensors, for models with experts
};

// expert_name inserts the expert number into a name pattern. holds_all_experts is true for names
// without a placeholder: one tensor with all experts.
std::string expert_name(const std::string& name, std::int64_t expert);
bool holds_all_experts(const std::string& name);

// Checks that `names` has every tensor of the model and, under the language model's prefix, no
// other tensor. Returns how the tensors are named. Throws bad input otherwise.
TensorPrefix check_names(const ModelConfig& model, const std::vector<std::string>& names,
                         const std::string& where);

}  // namespace qkscope
