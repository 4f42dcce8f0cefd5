// A model with the device it runs on.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "device/backend.h"
#include "model/loaded_checkpoint.h"
#include "qkscope/forward.h"

namespace qkscope::python {

struct LoadOptions {
  std::string overrides = "{}";  // JSON, merged into config.json
  bool fold_norms = false;
  std::string device = "auto";
  std::string dtype;  // "": float32 on the CPU; on CUDA the checkpoint's, where it has 16 bits
};

class LoadedModel {
 public:
  LoadedModel(const std::string& folder, const LoadOptions& options);

  const LoadedCheckpoint& model() const { return model_; }
  const BackendOptions& options() const { return options_; }

  // Whether Python gets activations where they were computed (DeviceArray) or as NumPy arrays.
  bool keeps_on_device() const { return keeps_on_device_; }
  void set_keeps_on_device(bool keeps) { keeps_on_device_ = keeps; }

  // Threads may run one model at the same time; on CUDA one waits for the other. Without the GIL.
  void run(const Batch& batch, Observer& observer);

 private:
  LoadedCheckpoint model_;
  BackendOptions options_;
  bool keeps_on_device_;
  // On CUDA, where weights and buffers are there once. On the CPU each pass makes its own.
  std::unique_ptr<Backend> backend_;
  std::mutex one_pass_;
  std::atomic<std::thread::id> runner_;
};

}  // namespace qkscope::python
