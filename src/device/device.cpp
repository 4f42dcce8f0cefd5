#include "device/device.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "core/edge.h"
#include "core/error.h"
#include "device/cuda/cuda_devices.h"

namespace qkscope {
namespace {

// N of cuda:N, -1 where it is no number.
int gpu_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

Device device_of(const std::string& wanted) {
  if (wanted == "cpu") return {};
  if (wanted == "auto") {
    const bool usable = cuda::device_count() > 0 && cuda::why_unusable(0).empty();
    return usable ? Device{Device::Kind::cuda, 0} : Device{};
  }
  const bool numbered = wanted.starts_with("cuda:");
  const int gpu = numbered ? gpu_number(std::string_view(wanted).substr(5)) : 0;
  if ((!numbered && wanted != "cuda") || gpu < 0)
    bad_input("device: found '{}', expected auto, cpu, cuda or cuda:N", wanted);
  const int gpus = cuda::device_count();
  if (gpus == 0) bad_input("device {}: {}; use cpu", wanted, cuda::why_no_device());
  if (gpu >= gpus)
    bad_input("device {}: there is no such GPU; found {}, numbered from 0", wanted, gpus);
  if (const auto why = cuda::why_unusable(gpu); !why.empty())
    bad_input("device {}: {}; use cpu", wanted, why);
  return {Device::Kind::cuda, gpu};
}

bool on_host(Device device) {
  return device.kind == Device::Kind::cpu;
}

}  // namespace

Device choose_device(const std::string& wanted) {
  return at_edge([&] { return device_of(wanted); });
}

std::string device_name(Device device) {
  return at_edge(
      [&] { return on_host(device) ? std::string("cpu") : fmt::format("cuda:{}", device.index); });
}

int cuda_device_count() {
  return at_edge([] { return cuda::device_count(); });
}

std::string why_no_cuda() {
  return at_edge([] { return cuda::why_no_device(); });
}

std::int64_t free_memory(Device device) {
  return on_host(device) ? 0 : cuda::free_memory(device.index);
}

void copy_values(TensorView to, ConstTensorView from) {
  at_edge([&] {
    if (to.dtype() != from.dtype() || to.size() != from.size() || !to.is_contiguous() ||
        !from.is_contiguous())
      bad_input(
          "copy values: found {} {} for {} {}; expected contiguous tensors of one type and size",
          dtype_name(from.dtype()), from.shape().to_string(), dtype_name(to.dtype()),
          to.shape().to_string());
    if (to.bytes() == from.bytes()) return;
    if (on_host(to.device()) && on_host(from.device()))
      std::memcpy(to.bytes(), from.bytes(), to.size_bytes());
    else
      cuda::copy_values(to, from);
  });
}

}  // namespace qkscope
