// Passes every step on to another backend, waits until it is done, and takes down how long that
// took and how much there was to compute.
#pragma once

#include <string>
#include <vector>

#include "engine/device/backend.h"
#include "qkscope/experimental/bench.h"

namespace qkscope {

class TimedBackend : public Backend {
 public:
  explicit TimedBackend(Backend& timed) : Backend(timed.model()), timed_(timed) {}

  const std::vector<BenchPart>& parts() const { return parts_; }
  const std::vector<BenchKernel>& kernels() const { return kernels_; }

  void begin(const Batch& batch) override;
  std::unique_ptr<KeyValueStore> make_store(std::int64_t sequences,
                                            std::int64_t positions) override {
    return timed_.make_store(sequences, positions);
  }
  void use_store(KeyValueStore& store) override { timed_.use_store(store); }
  void embed() override;
  void embed_positions() override;
  void put_residual(ConstTensorView residual) override;
  void begin_layer(std::int64_t layer) override;
  void keep_layer_input() override;
  void normalize(Norm norm) override;
  void project_qkv(bool values) override;
  void normalize_heads() override;
  void rotate() override;
  void attend() override;
  void project_output(Addition addition) override;
  void add_update() override;
  void project_router() override;
  void choose_experts() override;
  std::int64_t mlp_rows() const override { return timed_.mlp_rows(); }
  void project_gate_up(std::int64_t begin, std::int64_t count) override;
  void gate(std::int64_t count) override;
  void project_down(std::int64_t begin, std::int64_t count, Addition addition) override;
  void project_logits() override;
  void keep_rows(std::span<const std::int64_t> rows) override;
  std::int64_t running_rows() const override { return timed_.running_rows(); }
  void read(Buffer buffer, const Selection& selection, Show show) override;
  void edit(Buffer buffer, const std::function<void(TensorView)>& change) override;
  ActivationCopy copy(Buffer buffer, const Selection& selection) override;
  void put(Buffer buffer, const ActivationCopy& values) override;
  void score_rows(const RowScores& out) override;
  void pattern_of_edited_scores(const RowScores& edited) override;
  void attend_edited_rows(const RowScores& edited) override;
  void add_moments(Buffer buffer, const MomentRequest& request, MomentSink& sink) override;
  void keep_row_sums(bool keep) override { timed_.keep_row_sums(keep); }
  void add_attention(const AttentionRequest& request, AttentionSink& sink) override;
  void finish() override;
  std::string hardware() const override { return timed_.hardware(); }
  void wait() override { timed_.wait(); }
  std::string attention_kernel() const override { return timed_.attention_kernel(); }
  double product_rate(double seconds) override { return timed_.product_rate(seconds); }

 private:
  template <typename Step>
  void time(const char* part, double flop, Step step);
  BenchPart& part(const std::string& name);
  double product_flop(std::int64_t rows, std::int64_t in, std::int64_t out) const;
  double attention_flop() const;
  std::int64_t mlp_width() const;  // that a row goes through in this layer

  Backend& timed_;
  const Batch* batch_ = nullptr;
  std::int64_t layer_ = 0;
  std::vector<std::int64_t> kept_;  // rows of the batch that run; empty: all
  std::vector<BenchPart> parts_;    // in the order in which they first ran
  std::vector<BenchKernel> kernels_;
};

}  // namespace qkscope
