// An activation in device memory, for Python. Other libraries can import it through DLPack without
// a copy.
#pragma once

#include <nanobind/nanobind.h>

#include "qkscope/forward.h"

namespace qkscope::python {

// Copies share the memory.
struct DeviceArray {
  ActivationCopy copy;
};

}  // namespace qkscope::python
