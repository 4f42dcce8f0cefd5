// A model as Python holds it.
#pragma once

#include "qkscope/model.h"

namespace qkscope::python {

struct LoadedModel {
  Model model;
  // Whether Python gets activations where they were computed (DeviceArray) or as NumPy arrays.
  bool keeps_on_device;
};

}  // namespace qkscope::python
