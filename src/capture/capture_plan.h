// What a run will do, before it does it: folders found, heads chosen, hook points named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture_config.h"
#include "capture/capture_memory.h"
#include "capture/head_selection.h"
#include "capture/packing.h"
#include "captures/manifest.h"
#include "device/backend.h"
#include "model/model_config.h"
#include "qkscope/forward.h"

namespace qkscope {

// How the model runs, in place of what the configuration says.
struct ComputeOptions {
  std::string device;              // "": model.device_map
  std::optional<DType> dtype;      // of weights and activations on CUDA; none: the configuration's
  std::int64_t device_memory = 0;  // bytes that may be taken on CUDA; 0: what is free
  std::int64_t batch_tokens = 0;   // that run together on CUDA; 0: see capture/capture_memory.h
  bool deterministic = false;      // on CUDA: every document runs alone
};

struct CapturePlan {
  CaptureConfig config;
  std::string model_folder;
  std::string tokenizer_folder;
  std::string dataset_path;
  BackendOptions backend;
  MemoryPlan memory;
  Packing packing;
  ModelConfig model;
  HeadSelection selection;
  Manifest manifest;
  std::vector<HookPoint> points;  // one per group of the manifest
};

// Reads config.json, no weights. What does not fit on the device is refused.
CapturePlan make_plan(const CaptureConfig& config, const ComputeOptions& compute = {});

}  // namespace qkscope
