// Score attribution of one text. Two forward passes split queries and keys at chosen positions into
// components of the residual stream. Each component is projected to the heads that read it, so it
// takes (rows, d_head) values instead of (rows, d_model).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/numerics/matrix.h"
#include "input/checkpoint/safetensors.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Queries or keys of one head at selected positions, split into residual-stream components.
struct ComponentVectors {
  std::vector<std::string> labels;      // (components)
  std::vector<std::int64_t> positions;  // (rows) ascending
  FloatMatrix values;                   // (rows * components, d_head) before RoPE
  Tensor rotated;                       // (rows, d_head) unsplit vectors after RoPE

  std::int64_t component_count() const { return std::ssize(labels); }
  std::int64_t row_at_position(std::int64_t position) const;
  Matrix components_of_row(std::int64_t row) const;  // (components, d_head)
};

std::vector<double> row_sums(const Matrix& matrix);
std::vector<double> column_sums(const Matrix& matrix);

// The equation of score attribution for one head: with every norm scale frozen at its value, a
// query is a sum over components q_i = sum_c q_i^c, a key k_j = sum_d k_j^d, and the score is
//   s_ij = scale_i sum_{c,d} (R_i q_i^c) . (R_j k_j^d),
// where R_t is the rotation of RoPE at position t.
class HeadDecomposition {
 public:
  // `length`: number of tokens in the text; the RoPE frequencies of some models depend on it.
  HeadDecomposition(const Model& model, AttentionHead head, std::int64_t length);

  ComponentVectors q;
  ComponentVectors k;
  Tensor v;  // (rows of k, d_head), or empty if effects are not computed

  AttentionHead head() const { return head_; }
  // Score of query row i and key row j, computed as in the forward pass.
  double score(std::int64_t i, std::int64_t j) const;
  // Shape (q components, k components): contributions to the score of query row i and key row j.
  Matrix contributions(std::int64_t i, std::int64_t j) const;
  // Components of query or key row i after RoPE: (components, d_head). Queries are softmax-scaled.
  Matrix scaled_query_components(std::int64_t i) const;
  Matrix rotated_key_components(std::int64_t j) const;
  // Softmax of a query's scores, shape (keys up to the query), with soft cap, window and sink.
  std::vector<double> apply_softmax(std::vector<double> scores) const;

  // Number of rotary pairs; 0 on NoPE layers.
  std::int64_t rotary_pair_count() const { return std::ssize(frequencies_.inverse); }
  double frequency(std::int64_t pair) const {  // radians per token
    return static_cast<double>(frequencies_.inverse[static_cast<std::size_t>(pair)]);
  }
  // Splits the dot product of a scaled, rotated query and a rotated key (d_head) by rotary pair:
  // shape (rotary_pair_count() + 1). The last entry covers the dimensions without RoPE.
  std::vector<double> split_score_by_rotary_pair(const double* query, const double* key) const;
  // Score of the unrotated query (d_head) of row i and an unrotated key `distance` tokens earlier.
  double score_at_distance(std::int64_t i, const double* query, const double* key,
                           std::int64_t distance) const;

 private:
  double score_scale_at(std::int64_t position) const;
  void rotate_rows(Matrix& rows, std::int64_t position) const;
  std::pair<std::int64_t, std::int64_t> pair_dimensions(std::int64_t pair) const;

  AttentionHead head_;
  double scale_;
  double softcap_;       // 0: none
  std::int64_t window_;  // 0: all keys
  std::optional<double> sink_;
  std::optional<QueryScaling> query_scaling_;
  RopeFrequencies frequencies_;  // empty on NoPE layers
  bool interleaved_;
};

// A feature of a transcoder or sparse autoencoder (SAE) that is active at some chosen positions.
struct ActiveFeature {
  std::int64_t number = 0;
  Tensor direction;    // (1, d_model)
  Tensor activations;  // (positions, 1)
};

// A safetensors file with {component}.decoder (features, d_model), the directions that are added to
// the residual stream, and {component}.activations (tokens, features).
class FeatureFile {
 public:
  // Throws a bad-input error if shapes do not match the model and the text.
  FeatureFile(const std::string& path, std::int64_t tokens, std::int64_t d_model);

  bool has_component(const std::string& component) const { return components_.contains(component); }
  // Returns the features that are active at the given positions and marks the component as used.
  std::vector<ActiveFeature> active_features(const std::string& component,
                                             std::span<const std::int64_t> positions);
  // Throws a bad-input error that names a component in the file that was never used.
  void check_all_components_used() const;

 private:
  ConstTensorView read_matrix(const std::string& component, const char* ending) const;

  SafetensorsFile file_;
  std::map<std::string, bool> components_;  // whether the component was asked for
};

// Projects residual-stream components to the queries or keys of one head. The projection is linear,
// because the norms divide by the scales from the forward pass.
struct HeadProjector {
  HeadProjector(const Model& model, AttentionHead head, bool query,
                std::vector<std::int64_t> positions);

  // Copies columns [first, first + width) of an activation at the chosen positions.
  Tensor copy_columns(ConstTensorView x, std::int64_t first, std::int64_t width) const;
  Tensor copy_columns(ConstTensorView x) const { return copy_columns(x, 0, x.size() / x.dim(0)); }
  // Copies the vectors of this head from x, shape (rows of the pass, heads, d_head).
  Tensor copy_head_columns(ConstTensorView x) const {
    return copy_columns(x, own_head * x.dim(2), x.dim(2));
  }

  // Adds a component: `part` (positions, d_head) is its contribution to the queries or keys.
  void add_component(std::string label, Tensor part);
  void add_bias(Tensor part);  // adds to the component `bias`
  // Divides the components by the scales of the norms, then adds the bias b_Q or b_K and, in
  // families that clip queries and keys, the clipping terms clip_Q or clip_K.
  ComponentVectors compute_component_vectors();

  const ModelConfig& model;
  AttentionHead head;
  bool query;                           // false: keys
  std::int64_t own_head;                // query head, or key-value head (GQA) of `head`
  std::vector<std::int64_t> positions;  // ascending
  std::vector<std::int64_t> rows;       // (positions): row of each in observed activations
  Tensor matrix;                        // (d_head, d_model), weight of the input norm included
  Tensor constant;  // (1, d_head) biases of the projection and of the input norm, or empty
  std::vector<float> head_norm;  // (d_head) weight of the q/k norm, or empty
  std::vector<std::string> labels;
  std::vector<Tensor> parts;  // one per label, (positions, d_head)
  Tensor bias;                // (positions, d_head) component `bias`, or empty
  Tensor input_scale;         // (positions, 1): divisor of the input norm; 1 without norm
  Tensor head_scale;          // (positions, 1); empty: no q/k norm
  Tensor rotated;             // (positions, d_head): vectors exactly as they enter the dot product
  Tensor values;              // (positions, d_head): v, if it was collected
};

struct ComponentOptions {
  bool experts = false;
  bool biases = false;
  bool values = false;              // also collect the value vectors of key inputs
  FeatureFile* features = nullptr;  // may be null
};

// Runs the model over a text and passes every component of the residual stream to `inputs`.
void collect_components(const Model& model, const std::vector<std::int32_t>& tokens,
                        const ComponentOptions& options, std::vector<HeadProjector>& inputs);

struct ScoreAttribution::State {
  std::string label;
  std::string text_name;
  std::map<std::int64_t, std::string> tokens;  // texts or ids by position
  std::int64_t furthest = 0;                   // largest distance of distance_table()
  std::vector<HeadDecomposition> heads;
  std::vector<ScorePair> pairs;

  const HeadDecomposition& head(std::size_t pair) const {
    return *std::ranges::find(heads, pairs[pair].head, &HeadDecomposition::head);
  }
  Matrix contributions(std::size_t pair) const {
    const auto& of_head = head(pair);
    return of_head.contributions(of_head.q.row_at_position(pairs[pair].query),
                                 of_head.k.row_at_position(pairs[pair].key));
  }
};

// Returns the `top` indices (0: all) by size(index), descending; ties go to the lower index.
template <typename Size>
std::vector<std::size_t> indices_of_largest(std::size_t count, std::int64_t top, Size size) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  const auto kept = top == 0 ? count : std::min(count, static_cast<std::size_t>(top));
  std::ranges::partial_sort(indices, indices.begin() + static_cast<std::ptrdiff_t>(kept), {},
                            [&](std::size_t i) { return std::pair(-size(i), i); });
  indices.resize(kept);
  return indices;
}

// Chooses the keys to attribute for one query. attention: shape (keys up to the query).
using KeyChooser =
    std::function<std::vector<std::int64_t>(std::int64_t query, std::span<const float> attention)>;

// Parses AttributionOptions::keys for a text of `length` tokens.
KeyChooser parse_key_chooser(const std::string& keys, std::int64_t length);

// First pass of score attribution: runs the model up to the last layer in `heads` and calls
// `choose` for each head and each query, ascending. Sets the pairs' attention weights, not scores.
std::vector<ScorePair> choose_pairs(const Model& model, const std::vector<std::int32_t>& tokens,
                                    const std::vector<AttentionHead>& heads,
                                    const std::vector<std::int64_t>& queries,
                                    const KeyChooser& choose);

// Second pass of score attribution: splits the queries and keys of each head's pairs. With
// options.values, splits all keys up to the last query, not only the keys of the pairs.
std::vector<HeadDecomposition> decompose_heads(const Model& model,
                                               const std::vector<std::int32_t>& tokens,
                                               const std::vector<AttentionHead>& heads,
                                               const std::vector<ScorePair>& pairs,
                                               const ComponentOptions& options);

// Throws a bad-input error if the list is empty or contains a duplicate, a head that the model
// lacks, or a head in a layer without self-attention.
void check_head_list(const std::vector<AttentionHead>& heads, const ModelConfig& model);

// Returns `name`, or the last component of the model's folder path if `name` is empty.
std::string model_label(const std::string& name, const Model& model);

}  // namespace qkscope
