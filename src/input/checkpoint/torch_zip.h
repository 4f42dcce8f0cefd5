// PyTorch's checkpoints since 1.6: a zip file with a pickle that describes tensors and a member for
// the bytes of each storage.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "input/checkpoint/safetensors_header.h"

namespace qkscope {

// The tensors where they lie in the file, as if a safetensors header had said so.
SafetensorsHeader parse_torch_zip(std::span<const std::byte> file, const std::string& where);

}  // namespace qkscope
