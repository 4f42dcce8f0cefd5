// Which devices this machine has (choose_device and what else users see: qkscope/forward.h), and
// what is free on them.
#pragma once

#include <cstdint>

#include "qkscope/forward.h"

namespace qkscope {

// Bytes that are free on a GPU, whoever uses the others; 0 on the CPU.
std::int64_t free_memory(Device device);

}  // namespace qkscope
