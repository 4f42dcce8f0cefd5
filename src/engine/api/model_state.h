// What a Model holds.
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

struct Model::State {
  State(std::string checkpoint_folder, const ModelOptions& options);

  // On CUDA: one pass at a time, and none from a hook of another.
  void run_alone(const std::function<void()>& one_pass);

  std::string folder;
  LoadedCheckpoint checkpoint;
  BackendOptions backend_options;
  // On CUDA, where weights and buffers are there once. On the CPU each pass makes its own.
  std::unique_ptr<Backend> backend;
  std::mutex pass;
  std::atomic<std::thread::id> runner;
};

}  // namespace qkscope
