// The table of tensors that a model consists of: names and shapes, before any weight is read.
#pragma once

#include <string>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct TensorSpec {
  std::string name;  // below the language model's prefix: "layers.3.self_attn.q_proj.weight"
  Shape shape;
};

std::string embedding_name(const ModelConfig& model);  // below the prefix

// Everything below the prefix, in the order of the forward pass. Cross-attention layers have none.
// Experts are spelled as the family's published checkpoints do, or as `experts` says.
std::vector<TensorSpec> tensor_table(const ModelConfig& model);
std::vector<TensorSpec> tensor_table(const ModelConfig& model, const ExpertNames& experts);

// Where a checkpoint keeps the language model.
struct TensorPrefix {
  std::string backbone;  // "model.", "language_model.model.", ...
  std::string head;      // full name of the output embedding, "" when the file has none
  ExpertNames experts;   // the spelling that it has, where the model has experts
};

// The name of an expert's matrix, or of the tensor that holds all of them.
std::string expert_name(const std::string& name, std::int64_t expert);
bool holds_all_experts(const std::string& name);

// Checks that every tensor the model needs is among `names`, and that no tensor under the language
// model's prefix is left over. Needs no weights. Returns the prefix.
TensorPrefix check_names(const ModelConfig& model, const std::vector<std::string>& names,
                         const std::string& where);

}  // namespace qkscope
