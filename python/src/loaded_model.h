// The model object behind qkscope.Model.
#pragma once

#include "qkscope/model.h"

namespace qkscope::python {

struct LoadedModel {
  Model model;
  // Whether Python receives activations as DeviceArray (true) or as NumPy arrays (false).
  bool keeps_on_device;
};

}  // namespace qkscope::python
