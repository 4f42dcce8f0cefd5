#include "collect/head_sums.h"

#include <algorithm>
#include <cmath>

#include "collect/pattern_rows.h"
#include "core/index.h"
#include "forward/no_observer.h"

namespace qkscope {
namespace {

// Adds a row of a pattern to those columns that scores of heads are made of; the others stay 0.
class RowColumns {
 public:
  RowColumns(const ColumnLayout& layout, std::span<const std::int32_t> tokens)
      : layout_(layout), tokens_(tokens) {}

  void add(std::int64_t row, const float* p, std::span<double> sums) const {
    const auto at = [&](NearColumn column) -> double& {
      return sums[as_index(ColumnLayout::at(column))];
    };
    for (std::int64_t key = 0; key < std::min<std::int64_t>(4, row + 1); ++key) {
      sums[as_index(ColumnLayout::at(NearColumn::sink_0) + key)] += p[key];
      at(NearColumn::sink_4) += p[key];
    }
    at(NearColumn::self) += p[row];
    if (row > 0) at(NearColumn::prev) += p[row - 1];
    if (row == 1) at(NearColumn::prev_first) += p[0];
    at(NearColumn::top1) += *std::max_element(p, p + row + 1);
    add_equal_tokens(row, p, at(NearColumn::dup), at(NearColumn::ind));
    if (row > 0 && token(0) == token(row)) at(NearColumn::dup_first) += p[0];
    if (row > 0 && token(row - 1) == token(row)) at(NearColumn::ind_self) += p[row];
    if (layout_.all_keys) add_all_keys(row, p, sums);
  }

 private:
  std::int32_t token(std::int64_t position) const { return tokens_[as_index(position)]; }

  void add_equal_tokens(std::int64_t row, const float* p, double& dup, double& ind) const {
    for (std::int64_t key = 0; key < row; ++key)
      if (token(key) == token(row)) {
        dup += p[key];
        ind += p[key + 1];
      }
  }

  void add_all_keys(std::int64_t row, const float* p, std::span<double> sums) const {
    double entropy = 0;
    double distance = 0;
    for (std::int64_t key = 0; key <= row; ++key) {
      const auto mass = static_cast<double>(p[key]);
      if (mass > 0) entropy -= mass * std::log(mass);
      distance += mass * static_cast<double>(row - key);
    }
    sums[as_index(layout_.entropy())] += entropy;
    sums[as_index(layout_.perplexity())] += std::exp(entropy);
    if (row > 0)
      sums[as_index(layout_.entropy_relative())] +=
          entropy / std::log(static_cast<double>(row + 1));
    sums[as_index(layout_.distance_mean())] += distance;
  }

  const ColumnLayout& layout_;
  std::span<const std::int32_t> tokens_;
};

}  // namespace

struct HeadSums::Layer : AttentionSink {
  explicit Layer(const HeadSums& owner) : all(owner) {}
  void add(LayerAttention part) override { all.add(*this, part); }

  const HeadSums& all;
  std::vector<double> sums;    // (heads, columns); empty until the layer ran
  std::vector<double> values;  // (heads, document columns)
};

HeadSums::HeadSums(const ModelConfig& model, const StatisticsSettings& settings)
    : heads_(model.n_heads),
      values_(document_column_names(settings).size()),
      capped_(model.attention_softcap > 0.0),
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
  if (capped_) {
    for (const auto& text : texts) run_by_rows(model, text);
    return;
  }
  Batch batch;
  pairs_.clear();
  for (const auto& text : texts) {
    batch.add(text);
    pairs_.push_back(count_pairs(text));
  }
  NoObserver nobody;
  model.run(batch, nobody, *this);
}

void HeadSums::run_by_rows(const Model& model, std::span<const std::int32_t> text) {
  const RowColumns columns(request_.layout, text);
  const auto count = as_index(request_.layout.columns());
  std::vector<std::vector<double>> sums(
      layers_.size() * as_index(heads_));  // (layers, heads), each (columns) or empty
  PatternRows(model.config(), text,
              [&](std::int64_t layer, std::int64_t head, std::int64_t row, const float* p) {
                auto& of_head = sums[as_index(layer * heads_ + head)];
                of_head.resize(count);
                columns.add(row, p, of_head);
              })
      .run(model);
  const auto pairs = count_pairs(text);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    for (std::int64_t head = 0; head < heads_; ++head)
      if (const auto& of_head = sums[layer * as_index(heads_) + as_index(head)]; !of_head.empty())
        add_text(*layers_[layer], head, pairs, of_head);
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
