// The plan of a run: resolved folders, selected heads, hook points, device and memory.
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

// Implementation of CapturePlan (qkscope/capture.h).
struct RunPlan {
  CaptureConfig config;
  std::string model_folder;
  std::string tokenizer_folder;
  std::shared_future<Tokenizer> tokenizer;  // being loaded, or invalid
  std::string dataset_path;
  BackendOptions backend;
  std::vector<BackendOptions> workers;  // one per device; the first equals `backend`
  MemoryPlan memory;                    // per worker
  Packing packing;
  ModelConfig model;
  HeadSelection selection;
  Manifest manifest;
  std::vector<HookPoint> points;  // (groups of the manifest)
};

// Reads config.json but no weights. Throws bad input if the run does not fit on the device.
RunPlan make_run_plan(const CaptureConfig& config, const ComputeOptions& compute = {});

// Returns the plan's tokenizer, or starts loading it. get() throws if it cannot be loaded.
std::shared_future<Tokenizer> load_tokenizer(const RunPlan& plan);

}  // namespace qkscope
