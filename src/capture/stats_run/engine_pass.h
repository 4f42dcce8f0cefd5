// Computes statistics of vectors from an external engine with the CPU backend.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "engine/device/backend.h"
#include "engine/forward/forward.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/experimental/engine.h"

namespace qkscope {

class ExternalEngineObserver : public Observer {
 public:
  explicit ExternalEngineObserver(const EngineModel& model);
  ~ExternalEngineObserver() override;

  // Runs a batch. Throws a bad-input error unless `run` passes q, k and v of each layer once.
  void run(const Batch& batch, const RunPass& run, LayerStatistics& statistics);

  bool wants(HookPoint point) const override;
  void see(HookPoint point, ConstTensorView activation) override;

 private:
  using Vectors = std::array<Tensor, 3>;  // q, k and v: (rows, heads, width)

  void add_layer(std::int64_t layer, const Vectors& vectors);
  // Width of the vectors that the engine passes.
  std::int64_t vector_width(std::size_t kind) const {
    return kind == 2 ? d_value_ : model_.config.d_head;
  }

  LoadedCheckpoint model_;  // without weights
  std::int64_t d_value_;
  std::unique_ptr<Backend> backend_;
  const Batch* batch_ = nullptr;
  LayerStatistics* statistics_ = nullptr;
  std::map<std::int64_t, Vectors> waiting_;  // layers of which some vectors are missing
  std::vector<bool> done_;                   // (layers)
};

}  // namespace qkscope
