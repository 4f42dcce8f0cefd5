// What group C takes from exports of other statistics (docs/exports.md): scales of an FP8 cache and
// q-filters.
#pragma once

#include <string>
#include <vector>

#include "engine/model/model_config.h"

namespace qkscope {

// The file in an fp8-kv or q-filters export, given by its folder or itself.
std::string key_scales_file(const std::string& path);
std::string key_filters_file(const std::string& path);

// (layers, key heads), the same for all heads of a layer where the export has one scale per tensor.
// What is not of this model is bad input.
std::vector<float> read_key_scales(const std::string& path, const ModelConfig& model);
// (layers, key heads, d)
std::vector<float> read_key_filters(const std::string& path, const ModelConfig& model);

}  // namespace qkscope
