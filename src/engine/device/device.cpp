#include "engine/device/device.h"

#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "engine/device/cuda_loader.h"

namespace qkscope {
namespace {

// Parses N of cuda:N; -1 if it is no number.
int gpu_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

// Logs once why no GPU is used: at info level if a driver is installed, else at debug level.
Device first_gpu_or_cpu() {
  const auto why = gpu_unavailable_reason(0);
  if (why.empty()) return {Device::Kind::cuda, 0};
  static std::once_flag said;
  std::call_once(said, [&] {
    log::write(cuda_driver().found ? LogLevel::info : LogLevel::debug, "the CPU is used: {}", why);
  });
  return {};
}

Device device_of(const std::string& wanted) {
  if (wanted == "cpu") return {};
  if (wanted == "auto") return first_gpu_or_cpu();
  const bool numbered = wanted.starts_with("cuda:");
  const int gpu = numbered ? gpu_number(std::string_view(wanted).substr(5)) : 0;
  if ((!numbered && wanted != "cuda") || gpu < 0)
    bad_input("device: found '{}', expected auto, cpu, cuda or cuda:N", wanted);
  if (const auto why = gpu_unavailable_reason(gpu); !why.empty())
    bad_input("device {}: {}; use cpu", wanted, why);
  return {Device::Kind::cuda, gpu};
}

const CudaModule& require_cuda_module() {
  if (cuda_module().module == nullptr) failure("no GPU can be used: {}", cuda_module().why_not);
  return *cuda_module().module;
}

bool on_host(Device device) {
  return device.kind == Device::Kind::cpu;
}

std::vector<Device> every_gpu() {
  std::vector<Device> devices;
  for (int gpu = 0; gpu < cuda_device_count(); ++gpu)
    if (gpu_unavailable_reason(gpu).empty()) devices.push_back({Device::Kind::cuda, gpu});
  if (devices.empty()) bad_input("devices all: {}", gpu_unavailable_reason(0));
  return devices;
}

// GPUs of different architectures use different kernels, whose results differ in the last bits.
void check_one_kind(Device first, Device other) {
  if (first.kind != other.kind)
    bad_input("devices: found {} and {}, expected devices of one kind", device_name(first),
              device_name(other));
  if (first.kind == Device::Kind::cpu) return;
  const auto& gpus = cuda_driver().gpus;
  const auto& a = gpus[as_index(first.index)];
  const auto& b = gpus[as_index(other.index)];
  if (a.major != b.major || a.minor != b.minor)
    bad_input(
        "devices: {} has compute capability {}.{}, {} has {}.{}; expected GPUs of one kind, whose "
        "results have the same bits",
        device_name(first), a.major, a.minor, device_name(other), b.major, b.minor);
}

}  // namespace

std::vector<Device> choose_devices(const std::vector<std::string>& wanted) {
  if (wanted.empty()) bad_input("devices: found none, expected a list, or all");
  std::vector<Device> devices;
  for (const auto& name : wanted) {
    if (name == "all" && wanted.size() > 1)
      bad_input("devices: 'all' stands alone, expected no other beside it");
    if (name == "all") {
      devices = every_gpu();
      break;
    }
    devices.push_back(device_of(name));
  }
  for (const auto& device : devices) check_one_kind(devices.front(), device);
  return devices;
}

Device choose_device(const std::string& wanted) {
  return translate_exceptions([&] { return device_of(wanted); });
}

std::string device_name(Device device) {
  return translate_exceptions(
      [&] { return on_host(device) ? std::string("cpu") : fmt::format("cuda:{}", device.index); });
}

int cuda_device_count() {
  return translate_exceptions([] {
    return cuda_module().module == nullptr ? 0 : static_cast<int>(cuda_driver().gpus.size());
  });
}

std::string why_no_cuda() {
  return translate_exceptions([] { return cuda_module().why_not; });
}

std::int64_t free_memory(Device device) {
  return on_host(device) ? 0 : require_cuda_module().free_memory(device.index);
}

void copy_values(TensorView to, ConstTensorView from) {
  translate_exceptions([&] {
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
      require_cuda_module().copy_values(to, from);
  });
}

}  // namespace qkscope
