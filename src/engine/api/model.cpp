#include "qkscope/model.h"

#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "base/io/json.h"
#include "engine/api/model_state.h"
#include "engine/forward/forward.h"
#include "engine/model/weight_processing.h"
#include "qkscope/experimental/store.h"
#include "qkscope/hub.h"

namespace qkscope {
namespace {

// Marks the current thread as the one that runs the model.
class RunnerMark {
 public:
  explicit RunnerMark(std::atomic<std::thread::id>& runner) : runner_(runner) {
    runner_ = std::this_thread::get_id();
  }
  ~RunnerMark() { runner_ = std::thread::id(); }
  RunnerMark(const RunnerMark&) = delete;
  RunnerMark& operator=(const RunnerMark&) = delete;

 private:
  std::atomic<std::thread::id>& runner_;
};

// Compute type of a checkpoint: that of the embedding, which FP8 checkpoints do not quantise.
DType stored_dtype(const LoadedCheckpoint& checkpoint) {
  const auto stored = checkpoint.weights.embedding.values.dtype();
  return stored == DType::bf16 || stored == DType::f16 ? stored : DType::f32;
}

}  // namespace

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

BackendOptions make_backend_options(const LoadedCheckpoint& checkpoint,
                                    const ModelOptions& options) {
  BackendOptions backend{.device = choose_device(options.device), .dtype = DType::f32};
  backend.device_memory = options.device_memory;
  backend.longest_batch = options.longest_batch;
  const auto dtype = options.dtype.empty() ? stored_dtype(checkpoint)
                                           : parse_compute_dtype(options.dtype, "dtype");
  if (backend.device.kind == Device::Kind::cuda) backend.dtype = dtype;
  return backend;
}

Model::State::State(std::string checkpoint_folder, const ModelOptions& options)
    : folder(std::move(checkpoint_folder)),
      checkpoint(load_checkpoint(folder, options)),
      backend_options(make_backend_options(checkpoint, options)) {
  if (backend_options.device.kind == Device::Kind::cuda)
    backend = make_backend(checkpoint, backend_options);
}

void Model::State::run_exclusive(const std::function<void()>& one_pass) {
  if (runner == std::this_thread::get_id())
    bad_input(
        "a hook runs the model that it hangs on: on {} a model has room for one pass at a time; "
        "run it before or after, or load it twice",
        device_name(backend_options.device));
  const std::lock_guard lock(pass);
  const RunnerMark mark(runner);
  one_pass();
}

Model Model::load(const std::string& folder_or_id, const ModelOptions& options) {
  return translate_exceptions([&] {
    const FetchOptions fetch{.quiet = options.quiet};
    auto folder = fetch_checkpoint(fetch_input(folder_or_id, fetch), options.revision, fetch);
    return Model(std::make_unique<State>(std::move(folder), options));
  });
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const {
  return state_->checkpoint.config;
}
const ModelWeights& Model::weights() const {
  return state_->checkpoint.weights;
}
const std::string& Model::folder() const {
  return state_->folder;
}
Device Model::device() const {
  return state_->backend_options.device;
}
DType Model::dtype() const {
  return state_->backend_options.dtype;
}

void Model::run(const Batch& batch, Observer& observer) const {
  run(batch, observer, {});
}

void Model::run(const Batch& batch, Observer& observer, const RunOptions& options) const {
  run_observed(observer, [&](Observer& recorder) {
    if (state_->backend)
      state_->run_exclusive([&] { forward(*state_->backend, batch, recorder, options); });
    else
      forward(state_->checkpoint, batch, recorder, options);
  });
}

void Model::run(const Batch& batch, Observer& observer, LayerStatistics& statistics) const {
  run_observed(observer, [&](Observer& recorder) {
    const auto pass = [&](Backend& backend) { forward(backend, batch, recorder, statistics); };
    if (state_->backend)
      state_->run_exclusive([&] { pass(*state_->backend); });
    else
      pass(*make_backend(state_->checkpoint, state_->backend_options));
  });
}

}  // namespace qkscope
