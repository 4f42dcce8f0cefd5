// Reads exports of other statistics (docs/exports.md) that group C uses: FP8 key scales and q-filters.
#pragma once

#include <string>
#include <vector>

#include "engine/model/model_config.h"

namespace qkscope {

// Returns the file of an fp8-kv or q-filters export, given its folder or the file itself.
std::string key_scales_file(const std::string& path);
std::string key_filters_file(const std::string& path);

// Returns scales of shape (layers, key heads); an export with one scale per tensor repeats it for all
// heads. Throws bad input if the shapes do not match the model.
std::vector<float> read_key_scales(const std::string& path, const ModelConfig& model);
// Returns filters of shape (layers, key heads, d).
std::vector<float> read_key_filters(const std::string& path, const ModelConfig& model);

}  // namespace qkscope
