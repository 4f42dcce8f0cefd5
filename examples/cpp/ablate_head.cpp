// Prints the next token that a model predicts with and without one of its heads.
//   ablate_head MODEL LAYER HEAD TEXT
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <qkscope/error.h>
#include <qkscope/forward.h>
#include <qkscope/model.h>
#include <qkscope/tokenizer.h>

// Sets the output of one head to zero at every position and keeps the logits of the last row.
class Ablation : public qkscope::Observer {
 public:
  Ablation(std::int64_t layer, std::int64_t head) : z_{qkscope::Stage::z, layer}, head_(head) {}

  bool wants(qkscope::HookPoint point) const override {
    return point.stage == qkscope::Stage::logits || (head_ >= 0 && point == z_);
  }
  bool edits(qkscope::HookPoint point) const override { return point == z_; }
  void edit(qkscope::HookPoint, qkscope::TensorView z) override {  // (rows, n_heads, d_head)
    for (std::int64_t row = 0; row < z.dim(0); ++row)
      std::fill_n(z.data<float>() + row * z.stride(0) + head_ * z.stride(1), z.dim(2), 0.0f);
  }
  void observe(qkscope::HookPoint, qkscope::ConstTensorView logits) override {  // (rows, vocab)
    const auto last = logits.rows(logits.dim(0) - 1, logits.dim(0));
    logits_.assign(last.data<float>(), last.data<float>() + last.size());
  }
  const std::vector<float>& logits() const { return logits_; }

 private:
  qkscope::HookPoint z_;
  std::int64_t head_;  // -1: none
  std::vector<float> logits_;
};

int main(int argc, char** argv) try {
  if (argc != 5) return std::fprintf(stderr, "usage: ablate_head MODEL LAYER HEAD TEXT\n"), 2;
  const auto model = qkscope::Model::load(argv[1]);
  const auto tokenizer = qkscope::Tokenizer::load(model.folder());
  qkscope::Batch batch;
  batch.add(tokenizer.encode(argv[4]).ids);
  Ablation whole(0, -1), ablated(std::atol(argv[2]), std::atol(argv[3]));
  model.run(batch, whole);
  model.run(batch, ablated);
  for (const auto* run : {&whole, &ablated}) {
    const auto& logits = run->logits();
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    std::printf("%-8s next token '%s', logit %.3f\n", run == &whole ? "whole" : "ablated",
                tokenizer.token_string(static_cast<std::int32_t>(best)).c_str(),
                static_cast<double>(logits[static_cast<std::size_t>(best)]));
  }
} catch (const qkscope::Error& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), error.exit_code();
}
