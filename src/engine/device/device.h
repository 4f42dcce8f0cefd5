// Which devices this machine has (choose_device and what else users see: qkscope/forward.h), and
// what is free on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

// Devices that share one run, as the user names them: cpu, cuda:N, the same one more than once, or
// all (every GPU). Bad input where there are none or where they are not of one kind, so that the
// numbers of a text would depend on where it ran.
std::vector<Device> choose_devices(const std::vector<std::string>& wanted);

// Bytes that are free on a GPU, whoever uses the others; 0 on the CPU.
std::int64_t free_memory(Device device);

}  // namespace qkscope
