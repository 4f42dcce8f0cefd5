// The model object behind qkscope.Model.
#pragma once

#include "qkscope/model.h"

namespace qkscope::python {

struct LoadedModel {
  Model model;
  // True: Python receives activations as DeviceArray. False: as NumPy arrays.
  bool keeps_on_device;
};

}  // namespace qkscope::python
