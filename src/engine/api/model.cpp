#include "qkscope/model.h"

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "engine/api/model_setup.h"
#include "engine/api/model_state.h"
#include "engine/api/watched_observer.h"
#include "engine/forward/forward.h"
#include "input/store/stored_input.h"
#include "qkscope/hub.h"

namespace qkscope {
namespace {

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

Model::State::State(std::string checkpoint_folder, const ModelOptions& options)
    : folder(std::move(checkpoint_folder)),
      checkpoint(load_checkpoint(folder, options)),
      backend_options(qkscope::backend_options(checkpoint, options)) {
  if (backend_options.device.kind == Device::Kind::cuda)
    backend = make_backend(checkpoint, backend_options);
}

void Model::State::run_alone(const std::function<void()>& one_pass) {
  if (runner == std::this_thread::get_id())
    bad_input(
        "a hook runs the model that it hangs on: on {} a model has room for one pass at a time; "
        "run it before or after, or load it twice",
        device_name(backend_options.device));
  const std::lock_guard lock(pass);
  const Running running(runner);
  one_pass();
}

Model Model::load(const std::string& folder_or_id, const ModelOptions& options) {
  return translate_exceptions([&] {
    const FetchOptions fetch{.quiet = options.quiet};
    auto folder = fetch_checkpoint(local_input(folder_or_id, fetch), options.revision, fetch);
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
  WatchedObserver watched(observer);
  try {
    if (state_->backend)
      state_->run_alone([&] { forward(*state_->backend, batch, watched, options); });
    else
      forward(state_->checkpoint, batch, watched, options);
  } catch (...) {
    watched.rethrow_if_thrown();
    rethrow_as_error();
  }
}

void Model::run(const Batch& batch, Observer& observer, LayerStatistics& statistics) const {
  WatchedObserver watched(observer);
  try {
    if (state_->backend)
      state_->run_alone([&] { forward(*state_->backend, batch, watched, statistics); });
    else
      forward(*make_backend(state_->checkpoint, state_->backend_options), batch, watched,
              statistics);
  } catch (...) {
    watched.rethrow_if_thrown();
    rethrow_as_error();
  }
}

}  // namespace qkscope
