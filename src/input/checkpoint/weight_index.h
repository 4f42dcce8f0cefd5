// The files that hold the weights of a checkpoint, and model.safetensors.index.json: which shard
// holds which tensor.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

namespace qkscope {

// A file with all weights, or an index that names its shards.
struct WeightFormat {
  const char* single;
  const char* index;
};
// The first that is there is taken.
inline constexpr std::array kWeightFormats = {
    WeightFormat{"model.safetensors", "model.safetensors.index.json"},
    WeightFormat{"pytorch_model.bin", "pytorch_model.bin.index.json"},
};

// Tensor name → shard file, a path within the checkpoint's folder that cannot leave it. `where`
// names the file in messages.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where);

}  // namespace qkscope
