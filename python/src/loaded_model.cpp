#include "loaded_model.h"

#include "core/dtype.h"
#include "core/error.h"
#include "forward/forward.h"
#include "io/json.h"
#include "model/fold_norms.h"

namespace qkscope::python {
namespace {

LoadedCheckpoint load(const std::string& folder, const LoadOptions& options) {
  auto model = load_model(folder, parse_json(options.overrides, "config_overrides"));
  if (options.fold_norms) fold_norms(model);
  return model;
}

// Of the embedding: where matrices are FP8, it says what they were made from.
DType stored_dtype(const LoadedCheckpoint& model) {
  const auto stored = model.weights.embedding.values.dtype();
  return stored == DType::bf16 || stored == DType::f16 ? stored : DType::f32;
}

BackendOptions backend_options(const LoadedCheckpoint& model, const LoadOptions& options) {
  const auto device = choose_device(options.device);
  if (device.kind == Device::Kind::cpu) return {.device = device, .dtype = DType::f32};
  if (options.dtype.empty()) return {.device = device, .dtype = stored_dtype(model)};
  const auto dtype = compute_dtype_from_name(options.dtype);
  if (!dtype) bad_input("dtype: found '{}', expected float32, float16 or bfloat16", options.dtype);
  return {.device = device, .dtype = *dtype};
}

// Marks a thread as the one that runs, as long as this lives.
class Running {
 public:
  explicit Running(std::atomic<std::thread::id>& runner) : runner_(runner) {
    runner_ = std::this_thread::get_id();
  }
  ~Running() { runner_ = std::thread::id(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<std::thread::id>& runner_;
};

}  // namespace

LoadedModel::LoadedModel(const std::string& folder, const LoadOptions& options)
    : model_(load(folder, options)),
      options_(backend_options(model_, options)),
      keeps_on_device_(options_.device.kind == Device::Kind::cuda) {
  if (options_.device.kind == Device::Kind::cuda) backend_ = make_backend(model_, options_);
}

void LoadedModel::run(const Batch& batch, Observer& observer) {
  if (!backend_) return forward(model_, batch, observer);
  if (runner_ == std::this_thread::get_id())
    bad_input(
        "a hook runs the model that it hangs on: on {} a model has room for one pass at a time; "
        "run it before or after, or load it twice",
        device_name(options_.device));
  const std::lock_guard one_pass(one_pass_);
  const Running running(runner_);
  forward(*backend_, batch, observer);
}

}  // namespace qkscope::python
