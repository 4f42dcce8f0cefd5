#include "device/device.h"

#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>

#include "core/edge.h"
#include "core/error.h"
#include "core/log.h"
#include "device/cuda_loader.h"

namespace qkscope {
namespace {

// N of cuda:N, -1 where it is no number.
int gpu_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

// The reason is said once: at length where a GPU might be expected.
Device first_gpu_or_cpu() {
  const auto why = why_not_gpu(0);
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
  if (const auto why = why_not_gpu(gpu); !why.empty())
    bad_input("device {}: {}; use cpu", wanted, why);
  return {Device::Kind::cuda, gpu};
}

const CudaModule& module_in_use() {
  if (cuda_part().module == nullptr) failure("no GPU can be used: {}", cuda_part().why_not);
  return *cuda_part().module;
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
  return at_edge([] {
    return cuda_part().module == nullptr ? 0 : static_cast<int>(cuda_driver().gpus.size());
  });
}

std::string why_no_cuda() {
  return at_edge([] { return cuda_part().why_not; });
}

std::int64_t free_memory(Device device) {
  return on_host(device) ? 0 : module_in_use().free_memory(device.index);
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
      module_in_use().copy_values(to, from);
  });
}

}  // namespace qkscope
