// The model object behind qkscope.Model.
#pragma once

#include "qkscope/model.h"

namespace qkscope::python {

struct LoadedModel {
  Model model;
  // Whether Python gets activations as DeviceArray or as NumPy arrays.
  bool keeps_on_device;
};

}  // namespace qkscope::python
