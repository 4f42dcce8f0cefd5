// Collects the components of the residual stream at chosen positions during a forward pass. Each
// component is projected to the queries and keys of the heads that read it, so it needs (rows,
// d_head) values instead of (rows, d_model).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/attribution/decomposition.h"
#include "analysis/attribution/features.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Projects components of the residual stream to the queries or keys of one head. The projection is
// linear once the norm scales are known.
struct HeadReader {
  // `positions` are ascending.
  HeadReader(const Model& model, AttentionHead head, bool query,
             std::vector<std::int64_t> positions);

  // Copies columns [first, first + width) of an activation at the chosen positions.
  Tensor copy_columns(ConstTensorView x, std::int64_t first, std::int64_t width) const;
  Tensor copy_columns(ConstTensorView x) const { return copy_columns(x, 0, x.size() / x.dim(0)); }
  // Copies the vectors of this reader's head from x, shape (rows of the pass, heads, d_head).
  Tensor copy_own_head(ConstTensorView x) const {
    return copy_columns(x, own_head * x.dim(2), x.dim(2));
  }

  // Adds a component: `part` (positions, d_head) is its projection to the query or key.
  void add(std::string label, Tensor part);
  void add_bias(Tensor part);  // adds to the component `bias`
  // Divides the components by the scales of the norms, then adds the bias b_Q or b_K and, in
  // families that clip queries and keys, the clipping terms clip_Q or clip_K.
  SplitVectors split();

  const ModelConfig& model;
  AttentionHead head;
  bool query;                           // false: keys
  std::int64_t own_head;                // head of q, or of k and v, which query heads share
  std::vector<std::int64_t> positions;  // ascending
  std::vector<std::int64_t> rows;       // (positions) indices among the rows of the collector
  Tensor matrix;                        // (d_head, d_model), weight of the input norm included
  Tensor constant;  // (1, d_head) biases of the projection and of the input norm, or empty
  std::vector<float> head_norm;  // (d_head) weight of the q/k norm, or empty
  std::vector<std::string> labels;
  std::vector<Tensor> parts;  // one per label, (positions, d_head)
  Tensor bias;                // (positions, d_head) component `bias`, or empty
  Tensor input_scale;         // (positions, 1); ones without a norm before attention
  Tensor head_scale;          // (positions, 1); empty: no q/k norm
  Tensor rotated;             // (positions, d_head): vectors exactly as they enter the dot product
  Tensor values;              // (positions, d_head): v, if it was collected
};

struct ComponentOptions {
  bool experts = false;
  bool biases = false;
  bool values = false;              // also collect v for the readers of keys
  FeatureFile* features = nullptr;  // may be null
};

// Runs the model over a text and passes every component of the residual stream to the readers.
void collect_components(const Model& model, const std::vector<std::int32_t>& tokens,
                        const ComponentOptions& options, std::vector<HeadReader>& readers);

}  // namespace qkscope
