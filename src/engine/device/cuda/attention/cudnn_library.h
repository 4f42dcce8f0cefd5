// Loads cuDNN with dlopen on first use, so that the module itself loads on machines without cuDNN.
#pragma once

namespace qkscope::cuda {

// Throws if cuDNN is not installed; the message says how to install it.
void open_cudnn();

}  // namespace qkscope::cuda
