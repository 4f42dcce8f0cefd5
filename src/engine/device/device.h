// Devices of this machine and their free memory; choose_device is in qkscope/forward.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

// Resolves device names (cpu, cuda:N, or all for every GPU) for one run; names may repeat. Throws
// bad input for an empty list and for different kinds, whose results differ in the last bits.
std::vector<Device> choose_devices(const std::vector<std::string>& wanted);

// Returns the free bytes of a GPU; 0 for the CPU.
std::int64_t free_memory(Device device);

}  // namespace qkscope
