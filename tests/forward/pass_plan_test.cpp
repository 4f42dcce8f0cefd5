#include <gtest/gtest.h>

#include "error_message.h"
#include "forward/hooks.h"

namespace qkscope {
namespace {

// Chooses a row that is there, and when it is asked again one that is not.
class Fickle : public Observer {
 public:
  bool wants(HookPoint point) const override { return point.stage == Stage::logits; }
  void see(HookPoint, ConstTensorView) override {}
  Selection selection(HookPoint) const override {
    row_ = asked_++ == 0 ? 0 : 1'000'000;
    return {.rows = {&row_, 1}, .heads = {}};
  }

 private:
  mutable std::int64_t row_ = 0;
  mutable int asked_ = 0;
};

TEST(PassPlan, AnObserverThatChangesItsMindIsRefused) {
  ModelConfig model;
  model.n_layers = 1;
  model.n_heads = model.n_kv_heads = 1;
  model.layers.resize(1);
  const Fickle observer;
  const auto message = bad_input_message([&] { PassPlan(model, observer, 4); });
  EXPECT_NE(message.find("row 1000000"), std::string::npos) << message;
}

}  // namespace
}  // namespace qkscope
