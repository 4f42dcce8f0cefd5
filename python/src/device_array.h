// An activation where the backend computed it, for Python: arrays of other libraries take it
// through DLPack without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include "qkscope/forward.h"

namespace qkscope::python {

// Copies share the memory.
struct DeviceArray {
  ActivationCopy copy;
};

}  // namespace qkscope::python
