#include "engine/api/model_setup.h"

#include "base/core/dtype.h"
#include "base/io/json.h"
#include "engine/model/weight_processing.h"
#include "qkscope/forward.h"

namespace qkscope {

LoadedCheckpoint load_checkpoint(const std::string& folder, const ModelOptions& options) {
  const Json overrides = options.config_overrides.empty()
                             ? Json()
                             : parse_json(options.config_overrides, "config_overrides");
  auto checkpoint = load_model(folder, overrides);
  if (options.fold_norms) fold_norms(checkpoint);
  if (options.center_writing_weights) center_writing_weights(checkpoint);
  if (options.center_unembed) center_unembed(checkpoint);
  if (options.fold_value_biases) fold_value_biases(checkpoint);
  return checkpoint;
}

namespace {

// Of the embedding: where matrices are FP8, it says what they were made from.
DType stored_dtype(const LoadedCheckpoint& checkpoint) {
  const auto stored = checkpoint.weights.embedding.values.dtype();
  return stored == DType::bf16 || stored == DType::f16 ? stored : DType::f32;
}

}  // namespace

BackendOptions backend_options(const LoadedCheckpoint& checkpoint, const ModelOptions& options) {
  BackendOptions backend{.device = choose_device(options.device), .dtype = DType::f32};
  backend.device_memory = options.device_memory;
  backend.longest_batch = options.longest_batch;
  const auto dtype = options.dtype.empty() ? stored_dtype(checkpoint)
                                           : parse_compute_dtype(options.dtype, "dtype");
  if (backend.device.kind == Device::Kind::cuda) backend.dtype = dtype;
  return backend;
}

}  // namespace qkscope
