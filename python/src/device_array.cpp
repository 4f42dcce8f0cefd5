#include "device_array.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "arrays.h"
#include "bind.h"
#include "error.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Values = nb::ndarray<const float, nb::c_contig>;

// Device types of DLPack.
int dlpack_type(Device device) {
  return device.kind == Device::Kind::cpu ? nb::device::cpu::value : nb::device::cuda::value;
}

Device device_of(const Values& values) {
  switch (values.device_type()) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value:
      return {};
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      return {Device::Kind::cuda, values.device_id()};
    default:
      reject("array on device {} of DLPack: expected one on the host or on an NVIDIA GPU",
             values.device_type());
  }
}

nb::typed<nb::tuple, int, int> device_pair(const DeviceArray& array) {
  const auto device = array.copy.view.device();
  return nb::make_tuple(dlpack_type(device), device.index);
}

// No stream synchronisation is needed: the data is complete before Python receives the array.
nb::object dlpack(nb::pointer_and_handle<DeviceArray> self, const nb::kwargs& options) {
  const auto& view = self.p->copy.view;
  const auto sizes = sizes_of(view.shape());
  const nb::ndarray<nb::array_api, float> exported(
      view.data<float>(), static_cast<std::size_t>(view.rank()), sizes.data(), self.h, nullptr,
      nb::dtype<float>(), dlpack_type(view.device()), view.device().index);
  return nb::cast(exported).attr("__dlpack__")(**options);
}

nb::typed<nb::tuple, int, nb::ellipsis> shape_of(const DeviceArray& array) {
  nb::list sizes;
  for (int i = 0; i < array.copy.view.rank(); ++i) sizes.append(array.copy.view.dim(i));
  return nb::tuple(sizes);
}

DeviceArray reshape(const DeviceArray& array, const nb::args& sizes) {
  std::array<std::int64_t, Shape::kMaxRank> wanted{};
  if (sizes.size() > wanted.size()) reject("reshape: expected at most 4 dimensions");
  std::int64_t count = 1;
  bool countable = true;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    wanted[i] = nb::cast<std::int64_t>(sizes[i]);
    countable &= wanted[i] >= 0 && !__builtin_mul_overflow(count, wanted[i], &count);
  }
  const Shape shape(std::span<const std::int64_t>(wanted.data(), sizes.size()));
  const auto& view = array.copy.view;
  if (!countable || count != view.size())
    reject("reshape: {} values do not make {}", view.size(), shape.to_string());
  return {{array.copy.memory, view.reshaped(shape)}};
}

void assign(const DeviceArray& array, const Values& values) {
  const auto& view = array.copy.view;
  if (static_cast<std::int64_t>(values.size()) != view.size())
    reject("assign: found {} values, expected {}", values.size(), view.size());
  const ConstTensorView from(reinterpret_cast<const std::byte*>(values.data()), DType::f32,
                             view.shape(), device_of(values));
  const nb::gil_scoped_release other_threads_may_run;
  copy_values(view, from);
}

Array on_host(const DeviceArray& array) {
  Tensor copy(array.copy.view.shape());
  {
    const nb::gil_scoped_release other_threads_may_run;
    copy_values(copy, array.copy.view);
  }
  return to_array(std::move(copy));
}

std::string describe(const DeviceArray& array) {
  const auto& view = array.copy.view;
  return fmt::format("DeviceArray(shape={}, dtype='float32', device='{}')",
                     view.shape().to_string(), device_name(view.device()));
}

}  // namespace

void bind_device_array(nb::module_& module) {
  nb::class_<DeviceArray>(module, "DeviceArray",
                          "An activation on the GPU, float32. torch.from_dlpack, cupy.from_dlpack "
                          "and jax.dlpack.from_dlpack show it without a copy.")
      .def_prop_ro("shape", &shape_of)
      .def_prop_ro("dtype", [](const DeviceArray&) { return "float32"; })
      .def_prop_ro(
          "device", [](const DeviceArray& array) { return device_name(array.copy.view.device()); },
          "'cuda:0'")
      .def("numpy", &on_host, "A copy on the host.")
      .def("reshape", &reshape, nb::sig("def reshape(self, *sizes: int) -> DeviceArray"),
           "Returns a view with another shape.")
      .def("assign", &assign, nb::arg("values"),
           nb::sig("def assign(self, values: object) -> None"),
           "Copies the values of a float32 array of the same size, on the host or on a GPU.")
      .def("__dlpack__", &dlpack, nb::sig("def __dlpack__(self, **options: object) -> object"))
      .def("__dlpack_device__", &device_pair)
      .def("__repr__", &describe);
}

}  // namespace qkscope::python
