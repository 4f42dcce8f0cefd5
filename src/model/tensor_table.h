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
std::vector<TensorSpec> tensor_table(const ModelConfig& model);

// Where a checkpoint keeps the language model.
struct TensorPrefix {
  std::string backbone;  // "model.", "language_model.model.", ...
  std::string head;      // full name of the output embedding, "" when the file has none
};

// Checks that every tensor the model needs is among `names`, and that no tensor under the language
// model's prefix is left over. Needs no weights. Returns the prefix.
TensorPrefix check_names(const ModelConfig& model, const std::vector<std::string>& names,
                         const std::string& where);

}  // namespace qkscope
