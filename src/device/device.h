// Which device a run uses.
#pragma once

#include <cstdint>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {

// auto (CUDA where there is a card this build can use, else the CPU), cpu, cuda or cuda:N.
Device choose_device(const std::string& wanted);

std::string device_name(Device device);  // "cpu", "cuda:0"

// Cards in this machine; 0 without the CUDA backend or a driver.
int cuda_device_count();

// Why this build cannot use a card that is there: its generation is too old. "" where it can.
std::string why_not_card(int card);

// Why there are none, for people: "this build has no CUDA backend".
std::string why_no_cuda();

// Bytes that are free on a card, whoever uses the others; 0 on the CPU.
std::int64_t free_memory(Device device);

// `to` gets the values of `from`, wherever each of them lies: dense, of one type and size. Waits
// for whoever still computes them on a card, and is done when this returns.
void copy_values(TensorView to, ConstTensorView from);

}  // namespace qkscope
