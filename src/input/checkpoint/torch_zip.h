// PyTorch checkpoints since version 1.6: a zip file with one pickle that describes the tensors and
// one member per storage.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "input/checkpoint/safetensors.h"

namespace qkscope {

// Returns the tensors and their byte ranges in the form of a safetensors header.
SafetensorsHeader parse_torch_zip(std::span<const std::byte> file, const std::string& where);

}  // namespace qkscope
