// Facts about the heads of a capture that its files do not state: which heads are analysed, and
// what a model's config.json says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/analysis.h"
#include "qkscope/model.h"

namespace qkscope {

// Returns the query heads selected by options.layers and options.heads, ascending. Throws bad input
// for a layer or head that the capture does not have, and lists those it has.
std::vector<HeadId> chosen_queries(const CaptureIndex& index, const AnalyzeOptions& options);

// Attention window of a layer in tokens; nullopt: full attention.
using WindowOfLayer = std::function<std::optional<std::int32_t>(int layer)>;

// Removes query heads of layers without the attention asked for by options.attention. Throws bad
// input where no head is left.
void keep_attention(std::vector<HeadId>& queries, const AnalyzeOptions& options,
                    const WindowOfLayer& window_of);

// Head counts, RoPE and windows from a model's config.json, for captures without metadata.
class ModelFacts {
 public:
  // `name`: checkpoint folder, model id, or ID@REVISION. Downloads only config.json from the Hub.
  ModelFacts(const std::string& name, bool quiet);

  HeadCounts counts() const;
  RopeInfo rope(int layer) const;
  std::optional<std::int32_t> window(int layer) const;

  // Throw bad input where the capture cannot be of this model: different head counts, no such
  // layer, vectors of another length.
  void check_counts(const HeadCounts& captured) const;
  void check_head(const HeadId& id, int head_dim, const std::string& file) const;

 private:
  std::string name_;
  ModelConfig model_;
};

}  // namespace qkscope
