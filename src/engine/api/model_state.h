// State of a Model, and helpers that Model, KeyValueCache and the benchmark share.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/model.h"

namespace qkscope {

// Loads a checkpoint folder and applies the config overrides and weight rewrites of the options.
LoadedCheckpoint load_checkpoint(const std::string& folder, const ModelOptions& options);

// Selects the device and compute type. Throws a bad-input error if the device is unavailable.
BackendOptions make_backend_options(const LoadedCheckpoint& checkpoint,
                                    const ModelOptions& options);

struct Model::State {
  State(std::string checkpoint_folder, const ModelOptions& options);

  // Runs one pass under the lock of the CUDA backend. Throws a bad-input error if called on the
  // same thread from a hook of a running pass, which would deadlock.
  void run_exclusive(const std::function<void()>& one_pass);

  std::string folder;
  LoadedCheckpoint checkpoint;
  BackendOptions backend_options;
  // CUDA only: owns weights and buffers. On the CPU each pass creates a new backend.
  std::unique_ptr<Backend> backend;
  std::mutex pass;
  std::atomic<std::thread::id> runner;
};

// Forwards every call to another observer and records the exception that the observer throws.
class ExceptionRecorder : public Observer {
 public:
  explicit ExceptionRecorder(Observer& observer) : observer_(observer) {}

  bool wants(HookPoint point) const override { return forward_call(&Observer::wants, point); }
  bool wants_derived() const override { return forward_call(&Observer::wants_derived); }
  void begin_layer(std::int64_t layer) override { forward_call(&Observer::begin_layer, layer); }
  Selection selection(HookPoint point) const override {
    return forward_call(&Observer::selection, point);
  }
  void see(HookPoint point, ConstTensorView x) override { forward_call(&Observer::see, point, x); }
  bool edits(HookPoint point) const override { return forward_call(&Observer::edits, point); }
  void edit(HookPoint point, TensorView x) override { forward_call(&Observer::edit, point, x); }
  bool keeps_on_device() const override { return forward_call(&Observer::keeps_on_device); }
  bool keep(HookPoint point, const ActivationCopy& x) override {
    return forward_call(&Observer::keep, point, x);
  }
  std::span<const std::int64_t> score_rows() const override {
    return forward_call(&Observer::score_rows);
  }

  void rethrow_if_thrown() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  template <typename Method, typename... Arguments>
  std::invoke_result_t<Method, Observer&, const Arguments&...> forward_call(
      Method method, const Arguments&... arguments) const {
    try {
      return std::invoke(method, observer_, arguments...);
    } catch (...) {
      thrown_ = std::current_exception();
      throw;
    }
  }

  Observer& observer_;
  mutable std::exception_ptr thrown_;
};

// Calls run(observer). Exceptions thrown by the observer propagate unchanged; all others become
// qkscope::Error.
template <typename Run>
void run_with_observer(Observer& observer, Run run) {
  ExceptionRecorder recorder(observer);
  try {
    run(recorder);
  } catch (...) {
    recorder.rethrow_if_thrown();
    rethrow_as_error();
  }
}

}  // namespace qkscope
