// cuDNN is opened when it is first needed: without it everything else works, so the module does
// not need it to be loaded itself.
#pragma once

namespace qkscope::cuda {

// Fails where cuDNN is not on this machine, saying how to get it.
void open_cudnn();

}  // namespace qkscope::cuda
