// Measures what the attention heads of a model attend to in a few texts: the scores of
// TransformerLens' head detector, scores for user-defined patterns, and measures that need no
// pattern. docs/how-to/heads.md defines them.
//
//   auto model = qkscope::Model::load("folder");
//   auto table = qkscope::score_heads(model, {tokenizer.encode("a b c a b c").ids});
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qkscope/experimental/engine.h"
#include "qkscope/model.h"
#include "qkscope/tables.h"
#include "qkscope/version.h"

namespace qkscope {

// Options of score_heads() and score_pattern().
struct HeadScoreOptions {
  enum class Measure : std::uint8_t {
    mul,  // the share of attention that lies on the pattern
    abs,  // 1 - the mean over queries of |attention - pattern|, rounded to three decimals
  };
  Measure measure = Measure::mul;
  bool exclude_bos = false;            // attention to the first token does not count
  bool exclude_current_token = false;  // attention of a query to itself does not count
  bool all_keys = true;                // add entropy and distance: a second pass over all scores
  std::string label = {};  // value of the column `model`; "": the last part of the folder's name
  // Called after every batch with the number of texts that are done.
  std::function<void(std::int64_t)> on_batch = {};
};

// Random token sequences, each repeated once: only induction can predict the second copy.
struct RepeatedTextOptions {
  std::int64_t texts = 8;
  std::int64_t tokens = 64;  // length of one copy
  std::uint64_t seed = 0;
  bool bos = true;  // begin each text with the ids that the model's tokenizer puts before texts
};
QKSCOPE_API std::vector<std::vector<std::int32_t>> repeated_texts(
    const Model& model, const RepeatedTextOptions& options = {});

// Mean next-token loss (nats) over the last `tokens - 1` tokens of every text. In repeated_texts(),
// these are the second copy without its first token; the loss is near 0 if the model copies.
QKSCOPE_API double second_copy_loss(const Model& model,
                                    const std::vector<std::vector<std::int32_t>>& texts,
                                    std::int64_t tokens);

// One row per head: model, layer, head, k_head, rope, attention, texts, tokens;
// previous_token_head, duplicate_token_head and induction_head as means over texts; then, as means
// over every token, sink_0 (attention to the first token), sink_4 (to the first four), self, prev,
// dup, ind, top1 and with all_keys entropy (nats), entropy_relative, perplexity, distance_mean. The
// full (queries, keys) attention matrix is never stored.
QKSCOPE_API Table score_heads(const Model& model,
                              const std::vector<std::vector<std::int32_t>>& texts,
                              const HeadScoreOptions& options = {});

// Like the overload of score_heads() above, for a model that runs in an external engine.
QKSCOPE_API Table score_heads(ExternalEngine& engine,
                              const std::vector<std::vector<std::int32_t>>& texts,
                              const HeadScoreOptions& options = {});

// Scores every head against a user-defined attention pattern. `pattern` has shape (tokens, tokens):
// rows are queries, values lie in [0, 1], and the part above the diagonal is 0. Returns shape
// (n_layers, n_heads); NaN on layers that do not run on text. Only a block of rows of one layer is
// in memory at a time.
QKSCOPE_API std::vector<double> score_pattern(const Model& model,
                                              const std::vector<std::int32_t>& text,
                                              const std::vector<float>& pattern,
                                              const HeadScoreOptions& options = {});

}  // namespace qkscope
