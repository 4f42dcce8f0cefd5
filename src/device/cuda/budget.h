// What may be taken of the card's memory, decided before anything is.
#pragma once

#include <cstdint>

#include "device/backend.h"

namespace qkscope::cuda {

class Budget {
 public:
  // Refuses a model that does not fit even when its weights stream.
  Budget(const ModelConfig& model, const BackendOptions& options);

  bool streams() const { return streams_; }
  // Refuses a batch whose activations do not fit beside the weights; says how long one may be.
  void check_rows(std::int64_t rows) const;

 private:
  std::int64_t weight_bytes(bool streamed) const;

  const ModelConfig& model_;
  BackendOptions options_;
  std::int64_t limit_;  // bytes
  bool streams_ = false;
};

}  // namespace qkscope::cuda
