#include <gtest/gtest.h>

#include "engine/forward/forward.h"
#include "error_message.h"

namespace qkscope {
namespace {

// Selects a valid row when first asked, and an invalid one after that.
class InconsistentSelection : public Observer {
 public:
  bool wants(HookPoint point) const override { return point.stage == Stage::logits; }
  void observe(HookPoint, ConstTensorView) override {}
  Selection selection(HookPoint) const override {
    row_ = asked_++ == 0 ? 0 : 1'000'000;
    return {.rows = {&row_, 1}, .heads = {}};
  }

 private:
  mutable std::int64_t row_ = 0;
  mutable int asked_ = 0;
};

TEST(PassPlan, ASelectionThatBecomesInvalidThrows) {
  ModelConfig model;
  model.n_layers = 1;
  model.n_heads = model.n_kv_heads = 1;
  model.layers.resize(1);
  const InconsistentSelection observer;
  const auto message = bad_input_message([&] { PassPlan(model, observer, 4); });
  EXPECT_NE(message.find("row 1000000"), std::string::npos) << message;
}

// Wants one row of the logits, or nothing.
class OneRow : public Observer {
 public:
  explicit OneRow(bool logits) : logits_(logits) {}
  bool wants(HookPoint point) const override { return logits_ && point.stage == Stage::logits; }
  void observe(HookPoint, ConstTensorView) override {}
  Selection selection(HookPoint) const override { return {.rows = {&row_, 1}, .heads = {}}; }

 private:
  bool logits_;
  std::int64_t row_ = 2;
};

// The pass ends in the last self-attention layer after the stage that statistics need, and drops no
// row.
TEST(PassPlan, StatisticsNeedEveryRowOfEveryLayer) {
  ModelConfig model;
  model.n_layers = 3;
  model.n_heads = model.n_kv_heads = 1;
  model.layers.resize(3);
  model.layers[2].cross_attention = true;
  const PassPlan moments(model, OneRow(false), 4, Stage::rot_k);
  EXPECT_FALSE(moments.ends_before({Stage::resid_post, 0}));
  EXPECT_FALSE(moments.ends_before({Stage::rot_k, 1}));
  EXPECT_TRUE(moments.ends_before({Stage::attn_scores, 1}));
  const PassPlan attention(model, OneRow(false), 4, Stage::z);
  EXPECT_FALSE(attention.ends_before({Stage::z, 1}));
  EXPECT_TRUE(attention.ends_before({Stage::attn_out, 1}));
  const PassPlan beside(model, OneRow(true), 4, Stage::z);
  EXPECT_FALSE(beside.ends_before({Stage::logits}));
  for (std::int64_t layer = -1; layer < 3; ++layer) EXPECT_FALSE(beside.drops_rows_in(layer));
}

}  // namespace
}  // namespace qkscope
