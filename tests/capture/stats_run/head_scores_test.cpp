// Group B of whole models against TransformerLens (tools/make_head_scores_golden.py).
#include <numeric>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "base/io/json.h"
#include "engine/forward/forward.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/statistics/attention_sums.h"
#include "paths.h"

namespace qkscope {
namespace {

StatisticsSettings settings() {
  StatisticsSettings s;
  s.near_keys = true;
  s.buckets = 1;
  s.bucket_size = 1 << 20;
  return s;
}

// Scores per layer and head of one document.
class Scores : public LayerStatistics, public AttentionConsumer {
 public:
  explicit Scores(std::vector<std::int32_t> tokens) : pairs_(count_token_patterns(tokens)) {
    request_.layout = attention_column_layout(settings());
    request_.bucket_size = settings().bucket_size;
    request_.buckets = 1;
    batch_.add(tokens);
  }

  void run(const std::string& folder) {
    const auto model = load_unprocessed_checkpoint(folder);
    const auto backend = make_backend(model);
    class Nobody : public Observer {
      bool wants(HookPoint) const override { return false; }
      void observe(HookPoint, ConstTensorView) override {}
    } nobody;
    forward(*backend, batch_, nobody, *this);
  }

  double value(const std::string& name, std::int64_t layer, std::int64_t head) const {
    const auto names = document_column_names(settings());
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return values_[as_index(layer)][as_index(head)][as_index(found - names.begin())];
  }

  bool accumulates_attention() const override { return true; }
  void collect_before_rotation(Backend&, std::int64_t) override {}
  void collect_after_rotation(Backend&, std::int64_t) override {}
  void collect_after_attention(Backend& backend, std::int64_t) override {
    backend.add_attention_statistics(request_, *this);
  }

  void add(LayerAttentionSums part) override {
    values_.emplace_back();
    const auto columns = as_index(part.columns);
    for (std::int64_t head = 0; head < part.heads; ++head) {
      std::vector<double> values(document_column_names(settings()).size());
      fill_document_columns(request_.layout, pairs_,
                            std::span(part.sum).subspan(as_index(head) * columns, columns), {},
                            values);
      values_.back().push_back(values);
    }
  }

 private:
  TokenPatternCounts pairs_;
  AttentionRequest request_;
  Batch batch_;
  std::vector<std::vector<std::vector<double>>> values_;  // (layers, heads, document columns)
};

// mul: both are sums of 100 float32 probabilities; abs is rounded to three decimals by both.
TEST(HeadScores, AreThoseOfTransformerLens) {
  const auto models = load_json(golden_path("head_scores.json"));
  for (const auto& [name, expected] : models.items()) {
    SCOPED_TRACE(name);
    Scores scores(expected["token_ids"].get<std::vector<std::int32_t>>());
    scores.run(golden_path(name));
    for (const auto& [pattern, measures] : expected["scores"].items())
      for (const auto& [measure, left_out] : measures.items())
        for (const auto& [suffix, table] : left_out.items()) {
          const auto column = pattern + suffix + (measure == "abs" ? "_abs" : "");
          for (std::size_t layer = 0; layer < table.size(); ++layer)
            for (std::size_t head = 0; head < table[layer].size(); ++head)
              EXPECT_NEAR(scores.value(column, static_cast<std::int64_t>(layer),
                                       static_cast<std::int64_t>(head)),
                          table[layer][head].get<double>(), measure == "abs" ? 1e-6 : 1e-5)
                  << column << ", layer " << layer << ", head " << head;
        }
  }
}

// What the first 64 rows do does not depend on what comes after them.
TEST(HeadScores, SinksOfALongTextAreThoseOfItsBeginning) {
  std::vector<std::int32_t> tokens(4096);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>((i * 37 + i / 7) % 90);
  Scores whole(tokens);
  whole.run(golden_path("llama_gqa"));
  tokens.resize(64);
  Scores beginning(tokens);
  beginning.run(golden_path("llama_gqa"));
  for (std::int64_t layer = 0; layer < 2; ++layer)
    for (std::int64_t head = 0; head < 4; ++head)
      for (int key = 0; key < 4; ++key) {
        const auto name = "sink_alpha_64_" + std::to_string(key);
        EXPECT_NEAR(whole.value(name, layer, head), beginning.value(name, layer, head), 1e-6);
      }
}

}  // namespace
}  // namespace qkscope
