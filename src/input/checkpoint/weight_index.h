// Names of weight files, and the parser of model.safetensors.index.json, which maps tensors to
// shards.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

namespace qkscope {

// A single weight file, or an index of shards.
struct WeightFormat {
  const char* single;
  const char* index;
};
// In order of preference.
inline constexpr std::array kWeightFormats = {
    WeightFormat{"model.safetensors", "model.safetensors.index.json"},
    WeightFormat{"pytorch_model.bin", "pytorch_model.bin.index.json"},
};

// Returns tensor name → shard file. Throws bad input for a shard path outside the checkpoint
// folder. Error messages start with `where`.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where);

}  // namespace qkscope
