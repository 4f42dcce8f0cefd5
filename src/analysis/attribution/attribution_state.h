// Attributed scores of one text, shared by the functions that make tables of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/attribution/components.h"
#include "analysis/attribution/decomposition.h"
#include "analysis/attribution/pair_choice.h"
#include "qkscope/experimental/attribution.h"

namespace qkscope {

// What turns the scores of a head into its output, for effects.
struct HeadOutput {
  Tensor values;  // (keys, d_head)
  double softcap = 0.0;
  std::int64_t window = 0;  // 0: all keys
  bool has_sink = false;
  double sink = 0.0;
};

struct ScoreAttribution::State {
  std::string label;
  std::string text_name;
  std::map<std::int64_t, std::string> tokens;  // by position, of all pairs
  std::int64_t furthest = 0;                   // largest distance of distance_table()
  std::vector<HeadDecomposition> heads;
  std::vector<HeadOutput> outputs;  // one per head; empty without AttributionOptions::effect
  std::vector<ScorePair> pairs;
  std::vector<std::size_t> head_of_pair;

  const HeadDecomposition& head(std::size_t pair) const { return heads[head_of_pair[pair]]; }
  Matrix contributions(std::size_t pair) const {
    const auto& of_head = head(pair);
    return of_head.contributions(of_head.q.row_of(pairs[pair].query),
                                 of_head.k.row_of(pairs[pair].key));
  }
};

// Returns a table with the columns that identify a score.
Table pair_columns();
// Adds a row: the cells that identify a score, then `more`.
void add_pair_row(Table& table, const ScoreAttribution::State& state, std::size_t pair,
                  const std::vector<Table::Cell>& more);

// Heads, with the positions of their queries and keys, whose vectors a pass splits.
struct SplitRequest {
  AttentionHead head;
  std::vector<std::int64_t> queries;  // ascending
  std::vector<std::int64_t> keys;     // ascending
};

// Collects the positions of each head's pairs. With `whole_rows` all keys up to the last query.
std::vector<SplitRequest> make_requests(const std::vector<AttentionHead>& heads,
                                        const std::vector<ChosenPair>& pairs, bool whole_rows);

// A split head, and its vectors as they enter the dot product.
struct SplitHead {
  HeadDecomposition decomposition;
  Tensor rotated_q;  // (queries, d_head)
  Tensor rotated_k;  // (keys, d_head)
  Tensor values;     // (keys, d_head), if the options ask for values

  // Score of row i of q and row j of k as the pass computes it.
  double score(const ModelConfig& model, std::int64_t i, std::int64_t j) const;
};

// The second pass: splits the queries and keys of heads into components.
std::vector<SplitHead> split_heads(const Model& model, const std::vector<std::int32_t>& tokens,
                                   const std::vector<SplitRequest>& requests,
                                   const ComponentCollector::Options& options);

// Returns the name, or the last part of the model's folder if the name is empty.
std::string model_label(const std::string& name, const Model& model);

}  // namespace qkscope
