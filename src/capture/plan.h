// What a run will do, before it does it: folders found, heads chosen, hook points named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/config.h"
#include "capture/head_selection.h"
#include "capture/manifest.h"
#include "core/tensor.h"
#include "forward/hooks.h"
#include "model/config.h"

namespace qkscope {

struct CapturePlan {
  CaptureConfig config;
  std::string model_folder;
  std::string tokenizer_folder;
  std::string dataset_path;
  Device device;
  ModelConfig model;
  HeadSelection selection;
  Manifest manifest;
  std::vector<HookPoint> points;  // one per group of the manifest
};

// `device` overrides the configuration's where it is not empty. Reads config.json, no weights.
CapturePlan make_plan(const CaptureConfig& config, const std::string& device = "");

}  // namespace qkscope
