#include "capture/stats_run/head_sums.h"

#include "base/core/numbers.h"
#include "engine/forward/forward.h"

namespace qkscope {
struct HeadSums::Layer : AttentionConsumer {
  explicit Layer(const HeadSums& owner) : all(owner) {}
  void add(LayerAttention part) override { all.add(*this, part); }

  const HeadSums& all;
  std::vector<double> sums;    // (heads, columns); empty until the layer has run
  std::vector<double> values;  // (heads, document columns)
};

HeadSums::HeadSums(const ModelConfig& model, const StatisticsSettings& settings)
    : heads_(model.n_heads),
      values_(document_column_names(settings).size()),
      request_{.layout = column_layout(settings),
               .bucket_size = settings.bucket_size,
               .buckets = 1,
               .replacements = {},
               .kept = {}} {
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer)
    layers_.push_back(std::make_unique<Layer>(*this));
}

HeadSums::~HeadSums() = default;

void HeadSums::run(const Model& model, std::span<const std::vector<std::int32_t>> texts) {
  Batch batch;
  pairs_.clear();
  for (const auto& text : texts) {
    batch.add(text);
    pairs_.push_back(count_pairs(text));
  }
  NoObserver nobody;
  model.run(batch, nobody, *this);
}

void HeadSums::after_attention(Backend& backend, std::int64_t layer) {
  backend.add_attention(request_, *layers_[as_index(layer)]);
}

bool HeadSums::has(std::int64_t layer) const {
  return !layers_[as_index(layer)]->sums.empty();
}

double HeadSums::sum(std::int64_t layer, std::int64_t head, std::size_t column) const {
  const auto columns = as_index(request_.layout.columns());
  return layers_[as_index(layer)]->sums[as_index(head) * columns + column];
}

double HeadSums::value(std::int64_t layer, std::int64_t head, std::size_t column) const {
  return layers_[as_index(layer)]->values[as_index(head) * values_ + column];
}

void HeadSums::add(Layer& layer, const LayerAttention& part) const {
  const auto columns = as_index(part.columns);
  for (std::int64_t head = 0; head < heads_; ++head)
    for (std::int64_t text = 0; text < part.documents; ++text) {
      const auto from = as_index(text * part.heads + head) * columns;
      add_text(layer, head, pairs_[as_index(text)], std::span(part.sum).subspan(from, columns));
    }
}

void HeadSums::add_text(Layer& layer, std::int64_t head, const TokenPairs& pairs,
                        std::span<const double> sums) const {
  layer.sums.resize(as_index(heads_) * sums.size());
  layer.values.resize(as_index(heads_) * values_);
  std::vector<double> values(values_);
  document_values(request_.layout, pairs, sums, {}, values);
  for (std::size_t c = 0; c < sums.size(); ++c)
    layer.sums[as_index(head) * sums.size() + c] += sums[c];
  for (std::size_t c = 0; c < values_; ++c) layer.values[as_index(head) * values_ + c] += values[c];
}

}  // namespace qkscope
