#include "engine/device/backend.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "engine/device/cpu/cpu_backend.h"
#include "engine/device/cuda_module.h"
#include "engine/device/memory_plan.h"

namespace qkscope {
namespace {

// Returns the first GPU or, if that GPU cannot be used, the CPU; logs the reason only once.
Device first_gpu_or_cpu() {
  const auto why = gpu_unavailable_reason(0);
  if (why.empty()) return {Device::Kind::cuda, 0};
  static std::once_flag said;
  std::call_once(said, [&] {
    log::write(cuda_driver().found ? LogLevel::info : LogLevel::debug, "the CPU is used: {}", why);
  });
  return {};
}

Device parse_device(const std::string& wanted) {
  if (wanted == "cpu") return {};
  if (wanted == "auto") return first_gpu_or_cpu();
  const bool numbered = wanted.starts_with("cuda:");
  const int gpu = numbered ? parse_number<int>(std::string_view(wanted).substr(5)).value_or(-1) : 0;
  if ((!numbered && wanted != "cuda") || gpu < 0)
    reject("device: found '{}', expected auto, cpu, cuda or cuda:N", wanted);
  if (const auto why = gpu_unavailable_reason(gpu); !why.empty())
    reject("device {}: {}; use cpu", wanted, why);
  return {Device::Kind::cuda, gpu};
}

const CudaModule& require_cuda_module() {
  if (cuda_module().module == nullptr)
    throw_failure("no GPU can be used: {}", cuda_module().why_not);
  return *cuda_module().module;
}

bool is_cpu(Device device) {
  return device.kind == Device::Kind::cpu;
}

// GPUs of different architectures use different kernels, whose results differ in the last bits.
void check_same_device_kind(Device first, Device other) {
  if (first.kind != other.kind)
    reject("devices: found {} and {}, expected devices of one kind", device_name(first),
           device_name(other));
  if (first.kind == Device::Kind::cpu) return;
  const auto& gpus = cuda_driver().gpus;
  const auto& a = gpus[as_index(first.index)];
  const auto& b = gpus[as_index(other.index)];
  if (a.major != b.major || a.minor != b.minor)
    reject(
        "devices: {} has compute capability {}.{}, {} has {}.{}; expected GPUs of one kind, whose "
        "results have the same bits",
        device_name(first), a.major, a.minor, device_name(other), b.major, b.minor);
}

// Warns about texts longer than max_positions: once per value of max_positions, not per text.
void warn_about_long_texts(std::int64_t longest, const ModelConfig& model) {
  static std::atomic<std::int64_t> said_for = 0;
  if (longest <= model.max_positions ||
      said_for.exchange(model.max_positions) == model.max_positions)
    return;
  log::warn(
      "a text of {} tokens is longer than the {} positions this model is made for "
      "(max_position_embeddings); what it does beyond them is extrapolation",
      longest, model.max_positions);
}

}  // namespace

std::vector<Device> choose_devices(const std::vector<std::string>& wanted) {
  if (wanted.empty()) reject("devices: found none, expected a list, or all");
  std::vector<Device> devices;
  for (const auto& name : wanted) {
    if (name == "all" && wanted.size() > 1)
      reject("devices: 'all' stands alone, expected no other beside it");
    if (name != "all") devices.push_back(parse_device(name));
    for (int gpu = 0; name == "all" && gpu < cuda_device_count(); ++gpu)
      if (gpu_unavailable_reason(gpu).empty()) devices.push_back({Device::Kind::cuda, gpu});
  }
  if (devices.empty()) reject("devices all: {}", gpu_unavailable_reason(0));
  for (const auto& device : devices) check_same_device_kind(devices.front(), device);
  return devices;
}

Device choose_device(const std::string& wanted) {
  return translate_exceptions([&] { return parse_device(wanted); });
}

std::string device_name(Device device) {
  return translate_exceptions(
      [&] { return is_cpu(device) ? std::string("cpu") : fmt::format("cuda:{}", device.index); });
}

int cuda_device_count() {
  return translate_exceptions([] {
    return cuda_module().module == nullptr ? 0 : static_cast<int>(cuda_driver().gpus.size());
  });
}

std::string why_no_cuda() {
  return translate_exceptions([] { return cuda_module().why_not; });
}

std::int64_t free_memory_bytes(Device device) {
  return is_cpu(device) ? 0 : require_cuda_module().free_memory_bytes(device.index);
}

void copy_values(TensorView to, ConstTensorView from) {
  translate_exceptions([&] {
    if (to.dtype() != from.dtype() || to.size() != from.size() || !to.is_contiguous() ||
        !from.is_contiguous())
      reject("copy values: found {} {} for {} {}; expected contiguous tensors of one type and size",
             dtype_name(from.dtype()), from.shape().to_string(), dtype_name(to.dtype()),
             to.shape().to_string());
    if (to.bytes() == from.bytes()) return;
    if (is_cpu(to.device()) && is_cpu(from.device()))
      std::memcpy(to.bytes(), from.bytes(), to.size_bytes());
    else
      require_cuda_module().copy_values(to, from);
  });
}

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model,
                                      const BackendOptions& options) {
  if (options.device.kind == Device::Kind::cpu) return std::make_unique<CpuBackend>(model);
  check_model_runs_on(options.device, model.config);
  if (const auto why = gpu_unavailable_reason(options.device.index); !why.empty())
    reject("device {}: {}; use cpu", device_name(options.device), why);
  return cuda_module().module->make_backend(model, options, GpuMemoryBudget(model.config, options));
}

void check_model_runs_on(Device device, const ModelConfig& model) {
  const auto& mixer = model.mixer;
  const auto d_value = mixer.has_delta_rule() ? mixer.d_value : 0;
  const bool is_wide = std::max(mixer.d_key, d_value) > kCudaWidestKeys;
  if (device.kind == Device::Kind::cpu || !is_wide) return;
  reject(
      "device {}: {} models have {}s of wide heads, for which there is no CUDA kernel; use "
      "--device cpu{}",
      device_name(device), model.family, mixer_name(mixer.kind),
      model.has_equal_heads() ? ", or engine: transformers for captures and statistics" : "");
}

void Batch::add(std::span<const std::int32_t> sequence) {
  translate_exceptions([&] {
    sequences.push_back({rows(), std::ssize(sequence)});
    ids.insert(ids.end(), sequence.begin(), sequence.end());
  });
}

void Batch::add_positions(std::int64_t length) {
  translate_exceptions([&] {
    if (length < 1) reject("a sequence of {} positions; at least one is needed", length);
    sequences.push_back({rows(), length});
    ids.resize(ids.size() + as_index(length), 0);
  });
}

std::int64_t Batch::longest() const {
  std::int64_t length = 0;
  for (const auto& sequence : sequences) length = std::max(length, sequence.end());
  return length;
}

void check_batch_tokens(const Batch& batch, const ModelConfig& model) {
  if (model.learned_positions() && batch.longest() > model.max_positions)
    reject(
        "a text of {} tokens is longer than the {} positions that this {} model has learned; take "
        "a smaller tokenizer.max_length",
        batch.longest(), model.max_positions, model.family);
  warn_about_long_texts(batch.longest(), model);
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const auto& sequence = batch.sequences[s];
    if (sequence.length == 0) reject("sequence {} has no tokens; at least one is needed", s);
    for (std::int64_t p = 0; p < sequence.length; ++p) {
      const auto id = batch.ids[as_index(sequence.begin + p)];
      if (id < 0 || id >= model.embedding_rows)
        reject(
            "token id {} at position {} of sequence {} is outside the model's vocabulary: expected "
            "0 to {}",
            id, p, s, model.embedding_rows - 1);
    }
  }
}

}  // namespace qkscope
