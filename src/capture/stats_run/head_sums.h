// Sums of attention statistics (groups B and C) over a few texts for every head, in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/forward/forward.h"
#include "engine/statistics/attention_sums.h"
#include "qkscope/model.h"

namespace qkscope {

class HeadSums : public LayerStatistics {
 public:
  // `settings` must have one bucket that covers the longest text.
  HeadSums(const ModelConfig& model, const StatisticsSettings& settings);
  ~HeadSums() override;

  // Adds these texts.
  void run(const Model& model, std::span<const std::vector<std::int32_t>> texts);

  bool has(std::int64_t layer) const;  // false for layers that text does not use
  // Returns the sum over all rows of a column of column_names().
  double sum(std::int64_t layer, std::int64_t head, std::size_t column) const;
  // Returns the sum over texts of a column of document_column_names().
  double value(std::int64_t layer, std::int64_t head, std::size_t column) const;

  bool wants_attention() const override { return true; }
  void before_rotation(Backend&, std::int64_t) override {}
  void after_rotation(Backend&, std::int64_t) override {}
  void after_attention(Backend& backend, std::int64_t layer) override;

 private:
  struct Layer;

  void add(Layer& layer, const LayerAttention& part) const;
  void add_text(Layer& layer, std::int64_t head, const TokenPairs& pairs,
                std::span<const double> sums) const;

  std::int64_t heads_;
  std::size_t values_;  // number of document columns
  AttentionRequest request_;
  std::vector<TokenPairs> pairs_;  // (texts of the batch)
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace qkscope
