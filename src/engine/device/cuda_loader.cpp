#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/io/folder.h"
#include "engine/device/cuda_module.h"
#include "engine/device/module_stamp.h"
#include "engine/ops/attention.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kModule = "libqkscope_cuda.so";
constexpr int kOldestGpu = 8;  // Ampere, whose instructions the kernels need

const CudaModuleImports kImports{
    .log_wanted = log::is_enabled,
    .log_write = log::write,
    .parallel_for_ranges = parallel_for_ranges,
    .check_rows_fit = &GpuMemoryBudget::check_rows_fit,
    .reserve_cache = &GpuMemoryBudget::reserve_cache,
    .rope_frequencies = rope_frequencies,
    .compute_row_scores = compute_row_scores,
    .recompute_attention_pattern = recompute_attention_pattern,
    .recompute_edited_rows = recompute_edited_rows,
    .compute_attention_statistics = compute_attention_statistics,
    .group_rows_by_expert = group_rows_by_expert,
    .weights_to_float32 = weights_to_float32,
};

// CUDA driver functions used in this file, with the signatures of cuda.h.
struct DriverFunctions {
  int (*init)(unsigned flags);
  int (*version)(int* version);
  int (*count)(int* count);
  int (*device)(int* device, int number);
  int (*attribute)(int* value, int attribute, int device);
  int (*error_text)(int error, const char** text);
};
// Looks up a function of a shared library by name (dlsym); returns false if it is missing.
template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}
constexpr int kNoDevice = 100;        // CUDA_ERROR_NO_DEVICE
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR

std::string no_gpu_text() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr
             ? std::string("the NVIDIA driver finds no GPU")
             : fmt::format("the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES is '{}')",
                           visible);
}

std::string driver_error_text(const DriverFunctions& driver, int error) {
  if (error == kNoDevice) return no_gpu_text();
  const char* text = nullptr;
  driver.error_text(error, &text);
  return fmt::format("the NVIDIA driver refuses its GPUs: {} (error {})",
                     text == nullptr ? "unknown error" : text, error);
}

std::string format_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Suggests how to install a library that the loader did not find.
std::string install_hint(std::string_view library) {
  const auto number = library.substr(std::min(library.size(), library.rfind('.') + 1));
  if (library.starts_with("libcublas"))
    return fmt::format("'pip install \"nvidia-cublas=={0}.*\"' or CUDA {0} brings it", number);
  return "install the package that has it";
}

std::string load_error_text(const fs::path& file, std::string_view error) {
  const auto name = error.substr(0, std::min(error.find(':'), error.size()));
  const bool absent = error.find("cannot open shared object file") != error.npos;
  if (absent && name != file.string())
    return fmt::format("{} needs {}, which is not on this machine: {}", kModule, name,
                       install_hint(name));
  return fmt::format("{} cannot be loaded: {}", file.string(), error);
}

LoadedCudaModule load_cuda_module(const fs::path& file, const CudaDriver& driver) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, load_error_text(file, ::dlerror())};
  const auto* stamp = static_cast<const char*>(::dlsym(library, kCudaModuleStamp));
  const auto entry = reinterpret_cast<CudaModuleEntry*>(::dlsym(library, kCudaModuleEntry));
  if (stamp == nullptr || entry == nullptr)
    return {nullptr, fmt::format("{} is not a part of qkscope", file.string())};
  if (std::string_view(stamp) != QKSCOPE_MODULE_STAMP)
    return {nullptr, fmt::format("{} belongs to another qkscope: found {}, expected {}; build or "
                                 "install both together",
                                 file.string(), stamp, QKSCOPE_MODULE_STAMP)};
  const auto* module = entry(&kImports);
  if (driver.version / 1000 >= module->cuda_version / 1000) return {module, ""};
  return {
      nullptr,
      fmt::format("{} is built with CUDA {} and the NVIDIA driver serves up to {}: update it",
                  kModule, format_version(module->cuda_version), format_version(driver.version))};
}

}  // namespace

CudaDriver probe_driver(const std::string& library) {
  CudaDriver answer;
  const auto unusable = [&](std::string why_not) {
    answer.why_not = std::move(why_not);
    return answer;
  };
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return unusable(fmt::format("there is no NVIDIA driver on this machine ({} was not found)",
                                fs::path(library).filename().string()));
  answer.found = true;
  DriverFunctions driver;
  if (!find_function(handle, "cuInit", driver.init) ||
      !find_function(handle, "cuDriverGetVersion", driver.version) ||
      !find_function(handle, "cuDeviceGetCount", driver.count) ||
      !find_function(handle, "cuDeviceGet", driver.device) ||
      !find_function(handle, "cuDeviceGetAttribute", driver.attribute) ||
      !find_function(handle, "cuGetErrorString", driver.error_text))
    return unusable(fmt::format("{} is not an NVIDIA driver", library));
  int count = 0;
  int error = driver.init(0);
  if (error == 0) error = driver.version(&answer.version);
  if (error == 0) error = driver.count(&count);
  for (int i = 0; error == 0 && i < count; ++i) {
    int device = 0;
    CudaDriver::Gpu gpu;
    error = driver.device(&device, i);
    if (error == 0) error = driver.attribute(&gpu.major, kCapabilityMajor, device);
    if (error == 0) error = driver.attribute(&gpu.minor, kCapabilityMinor, device);
    answer.gpus.push_back(gpu);
  }
  if (error != 0) answer.gpus.clear();
  if (error != 0)
    answer.why_not = driver_error_text(driver, error);
  else if (count == 0)
    answer.why_not = no_gpu_text();
  return answer;
}

LoadedCudaModule open_cuda_module(const std::vector<std::string>& files, const CudaDriver& driver) {
  for (const auto& file : files) {
    std::error_code error;
    if (fs::exists(file, error)) return load_cuda_module(fs::absolute(file), driver);
  }
  return {nullptr, fmt::format("this package has no part for NVIDIA GPUs ({} does not exist; a "
                               "build with nvcc makes it)",
                               files.empty() ? std::string(kModule) : files.front())};
}

std::vector<std::string> cuda_module_files() {
  if (const char* chosen = std::getenv("QKSCOPE_CUDA_MODULE"); chosen != nullptr && *chosen != '\0')
    return {chosen};
  std::vector<std::string> files;
  for (const auto& file : {own_library_path(), own_program_path()}) {
    if (file.empty()) continue;
    for (const auto* way : {".", "qkscope", "../lib"})
      files.push_back((file.parent_path() / way / kModule).lexically_normal().string());
  }
  return files;
}

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = probe_driver(kDriver);
  return driver;
}

const LoadedCudaModule& cuda_module() {
  static const LoadedCudaModule part = cuda_driver().gpus.empty()
                                           ? LoadedCudaModule{nullptr, cuda_driver().why_not}
                                           : open_cuda_module(cuda_module_files(), cuda_driver());
  return part;
}

std::string gpu_unavailable_reason(int gpu) {
  const auto& driver = cuda_driver();
  if (driver.gpus.empty()) return driver.why_not;
  if (gpu < 0 || gpu >= static_cast<int>(driver.gpus.size()))
    return fmt::format("there is no such GPU; found {}, numbered from 0", driver.gpus.size());
  const auto [major, minor] = driver.gpus[as_index(gpu)];
  if (major < kOldestGpu)
    return fmt::format("the GPU has compute capability {}.{}, and {}.0 or later is needed", major,
                       minor, kOldestGpu);
  const auto& part = cuda_module();
  return part.module == nullptr ? part.why_not : part.module->gpu_incompatibility_reason(gpu);
}

}  // namespace qkscope
