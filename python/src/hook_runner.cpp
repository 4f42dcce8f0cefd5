#include "hook_runner.h"

#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "device_array.h"
#include "error.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

Tensor copy_tensor(ConstTensorView activation) {
  Tensor copy(activation.shape());
  std::memcpy(copy.view().bytes(), activation.bytes(), activation.size_bytes());
  return copy;
}

}  // namespace

void check_signals() {
  const nb::gil_scoped_acquire python;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

std::size_t HookRunner::number_of(HookPoint point) const {
  const auto& points = wanted_.points;
  return static_cast<std::size_t>(std::find(points.begin(), points.end(), point) - points.begin());
}

void HookRunner::observe(HookPoint point, ConstTensorView activation) {
  Tensor copy = copy_tensor(activation);
  const nb::gil_scoped_acquire python;
  const Array array = to_array(std::move(copy));
  call_(number_of(point), array);
  const bool changed = std::memcmp(array.data(), activation.bytes(), activation.size_bytes()) != 0;
  if (changed && !can_be_edited(point.stage))
    reject("hook at {}: it changed what can only be looked at; edit {}", hook_name(point),
           point.stage == Stage::result        ? "attn.hook_z"
           : point.stage == Stage::mixer_state ? "mixer.hook_in"
                                               : "hook_normalized");
}

void HookRunner::edit(HookPoint point, TensorView activation) {
  Tensor copy = copy_tensor(activation);
  const nb::gil_scoped_acquire python;
  const Array array = to_array(std::move(copy));
  call_(number_of(point), array);
  std::memcpy(activation.bytes(), array.data(), activation.size_bytes());
}

bool HookRunner::keep(HookPoint point, const ActivationCopy& activation) {
  const nb::gil_scoped_acquire python;
  call_(number_of(point), DeviceArray{activation});
  return edits(point);
}

}  // namespace qkscope::python
