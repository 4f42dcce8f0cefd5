// The first pass of score attribution: the attention of chosen queries, and the keys chosen by it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "qkscope/experimental/attribution.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope {

// A query and a key of one head, and its attention.
struct ChosenPair {
  std::size_t head = 0;  // index into the heads of the request
  std::int64_t query = 0;
  std::int64_t key = 0;
  double attention = 0;
};

// Returns the keys of one row. attention: (keys up to the query).
using ChooseKeys =
    std::function<std::vector<std::int64_t>(std::int64_t query, std::span<const float> attention)>;

// Parses AttributionOptions::keys for a text of `length` tokens.
ChooseKeys parse_key_choice(const std::string& keys, std::int64_t length);

// Runs the model up to the attention of the last head and calls `choose` for every head and query,
// in the order of `heads`, then of `queries`, which are ascending.
std::vector<ChosenPair> choose_pairs(const Model& model, const std::vector<std::int32_t>& tokens,
                                     const std::vector<AttentionHead>& heads,
                                     const std::vector<std::int64_t>& queries,
                                     const ChooseKeys& choose);

// Throws a bad-input error if there is no head, or one that the model does not have or that does
// not run on text.
void check_heads(const std::vector<AttentionHead>& heads, const ModelConfig& model);

// Resolves negative positions; sorted and distinct. Throws a bad-input error for positions outside
// the text. `what` names the option in messages.
std::vector<std::int64_t> resolve_positions(const std::vector<std::int64_t>& positions,
                                            std::int64_t length, const char* what);

}  // namespace qkscope
