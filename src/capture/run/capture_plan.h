// What a run will do, before it does it: folders found, heads chosen, hook points named.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "capture/format/manifest.h"
#include "capture/run/batch_size.h"
#include "capture/run/head_selection.h"
#include "engine/device/backend.h"
#include "engine/forward/hooks.h"
#include "engine/model/model_config.h"
#include "qkscope/capture.h"
#include "qkscope/forward.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

// What is behind a CapturePlan (qkscope/capture.h).
struct RunPlan {
  CaptureConfig config;
  std::string model_folder;
  std::string tokenizer_folder;
  std::shared_future<Tokenizer> tokenizer;  // on its way, or not begun
  std::string dataset_path;
  BackendOptions backend;
  std::vector<BackendOptions> workers;  // one for each device; the first is `backend`
  MemoryPlan memory;                    // of each of them
  Packing packing;
  ModelConfig model;
  HeadSelection selection;
  Manifest manifest;
  std::vector<HookPoint> points;  // one per group of the manifest
};

// Reads config.json, no weights. What does not fit on the device is refused.
RunPlan make_run_plan(const CaptureConfig& config, const ComputeOptions& compute = {});

// The plan's, or one that begins to load now. What is wrong with it is thrown by get().
std::shared_future<Tokenizer> load_tokenizer(const RunPlan& plan);

}  // namespace qkscope
