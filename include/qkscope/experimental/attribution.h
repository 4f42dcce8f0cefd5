// Score attribution: writes the attention score of a head as an exact sum over pairs of components
// of the residual stream (embeddings, earlier heads, earlier MLPs). docs/how-to/attribution.md
// defines the components.
//
//   auto model = qkscope::Model::load("folder");
//   qkscope::AttributionOptions options;
//   options.heads = {{18, 6}};
//   auto found = qkscope::attribute_scores(model, tokenizer.encode("a b c a b").ids, options);
//   found.table(20).write_csv("attribution.csv");
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/tables.h"
#include "qkscope/version.h"

namespace qkscope {

// One query head of a model, numbered from 0.
struct AttentionHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;

  bool operator==(const AttentionHead&) const = default;
};

// Parses "18.6", "18.*" (all heads of a layer) or a list "18.6,19.0". Throws a bad-input error for
// any other text and for heads that the model does not have.
QKSCOPE_API std::vector<AttentionHead> parse_heads(const std::string& text,
                                                   const ModelConfig& model);

// Options of attribute_scores().
struct AttributionOptions {
  std::vector<AttentionHead> heads = {};
  std::vector<std::int64_t> queries = {-1};  // positions; negative positions count from the end
  // Keys of every query: "top:N" (the N keys with the most attention), "all", or positions "0,5,-3"
  // (negative positions count from the end of the text).
  std::string keys = "top:8";
  bool experts = false;  // split the output of a mixture of experts into L{layer}E{expert}
  bool biases = false;   // move the output biases of MLPs from {layer}_mlp_out to `bias`
  bool effect = false;   // also compute effect_table(); needs the keys of the whole row
  // Safetensors file with {component}.decoder (features, d_model) and {component}.activations
  // (tokens, features), which split components into features. "" means no such file.
  std::string features = {};
  std::string label = {};       // value of the column `model`; "": last part of the folder's name
  std::string text_name = "0";  // value of the column `text`
};

// A score that was attributed.
struct ScorePair {
  AttentionHead head;
  std::int64_t query = 0;  // position
  std::int64_t key = 0;    // position
  double score = 0;        // scaled score, before soft cap, mask and softmax
  double attention = 0;    // softmax of the scores of the row
  double residual = 0;     // score minus the sum of all contributions: rounding of the pass
  double magnitude = 0;    // sum of the absolute contributions
};

// Attributed scores of one text.
class QKSCOPE_API ScoreAttribution {
 public:
  struct State;
  explicit ScoreAttribution(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  const std::vector<ScorePair>& pairs() const;
  // Labels of the residual-stream components of a score's query (or key), in forward order.
  const std::vector<std::string>& q_components(std::size_t pair) const;
  const std::vector<std::string>& k_components(std::size_t pair) const;
  // Contribution of each pair of components to the score, shape (q components, k components).
  std::vector<double> matrix(std::size_t pair) const;

  // All tables begin with the columns model, text, layer, head, query, key, query_token, key_token,
  // score, attention. Per score, the `top` component pairs of largest magnitude are kept; 0: all.

  // One row per pair of components: q_component, k_component, value, residual. If `top` limits the
  // rows, a row `others` holds the rest, so that the rows of a score still sum to the score.
  Table table(std::int64_t top) const;
  // One row per component of the query (side q) and of the key (side k): side, component, value.
  // The value is the sum over the components of the other side, so each side sums to the score.
  Table component_table() const;
  // One row per rotary pair: pair, frequency (radians per token), wavelength (tokens), value. A row
  // without a pair number holds the unrotated dimensions. With `components`, values are listed per
  // component pair (q_component, k_component), for the `top` pairs.
  Table rotary_table(bool components = false, std::int64_t top = 20) const;
  // The score if the same query and key content were `distance` tokens apart, for distances 0, 1,
  // 2, ..., 16 and log-spaced distances from there up to the model's context.
  Table distance_table(bool components = false, std::int64_t top = 20) const;
  // The effect of removing one component from the query (side q) or from all keys (side k) of the
  // row: attention_without, and output_change, the change of the head's output over its norm.
  // Effects do not add up. Throws a bad-input error unless AttributionOptions::effect was set.
  Table effect_table() const;

 private:
  std::shared_ptr<const State> state_;
};

// Attributes scores of one text in two passes. The first pass reads the attention of the queries
// and chooses the keys; the second reads the components at the chosen positions only. Throws a
// bad-input error for heads, queries or keys that do not exist.
QKSCOPE_API ScoreAttribution attribute_scores(const Model& model,
                                              const std::vector<std::int32_t>& tokens,
                                              const AttributionOptions& options);

// Options of composition().
struct CompositionOptions {
  std::vector<AttentionHead> heads = {};
  std::int64_t samples = 1000;  // pairs of query and key per head, spread evenly over the texts
  bool uniform = false;         // draw keys uniformly instead of by the attention of the head
  std::uint64_t seed = 0;
  bool biases = false;     // as in AttributionOptions
  std::int64_t top = 100;  // component pairs per head in Composition::pairs; 0: all
  std::string label = {};  // as in AttributionOptions
  // Called after each text with the number of texts done so far; an exception ends the run.
  std::function<void(std::int64_t)> on_text = {};
};

// Means, over sampled pairs of query and key, of the contributions of components to the score.
struct Composition {
  // Columns: model, layer, head, q_component, k_component, mean, stderr (over texts), explained
  // (covariance of the contribution with the score over the variance of the score), texts, samples.
  // A row `others` holds the sums of the component pairs that `top` leaves out.
  Table pairs;
  // Columns: model, layer, head, side (q or k), component, mean, stderr, explained, texts, samples.
  // Values are sums over the components of the other side; `explained` sums to 1 per head and side.
  Table components;
};

// Measures, over several texts, which residual-stream components contribute to the queries and keys
// of each head. Queries are drawn uniformly, keys with the query's attention as probability.
QKSCOPE_API Composition composition(const Model& model,
                                    const std::vector<std::vector<std::int32_t>>& texts,
                                    const CompositionOptions& options);

}  // namespace qkscope
