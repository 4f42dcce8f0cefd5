// model.safetensors.index.json: which shard of a checkpoint holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace qkscope {

inline constexpr const char* kWeightIndexFile = "model.safetensors.index.json";

// Tensor name → shard file, a path within the checkpoint's folder that cannot leave it. `where`
// names the file in messages.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where);

}  // namespace qkscope
