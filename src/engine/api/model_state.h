// State of a Model, and loading of checkpoints for Model and the benchmark.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

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
  void run_exclusively(const std::function<void()>& one_pass);

  std::string folder;
  LoadedCheckpoint checkpoint;
  BackendOptions backend_options;
  // CUDA only: owns weights and buffers. On the CPU each pass creates a new backend.
  std::unique_ptr<Backend> backend;
  std::mutex pass;
  std::atomic<std::thread::id> runner;
};

}  // namespace qkscope
