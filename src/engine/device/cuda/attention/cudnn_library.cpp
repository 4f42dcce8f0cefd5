// Trampolines for the functions of cuDNN and NVRTC that cudnn-frontend calls by name; each forwards
// to the library that open_cudnn() loaded.
#include "engine/device/cuda/attention/cudnn_library.h"

#include <cstdint>
#include <string>

#include <cudnn.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include "base/core/error.h"

namespace qkscope::cuda {
namespace {

const std::string kCudnn = fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
const std::string kNvrtc = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);

void* cudnn() {
  static void* const library = ::dlopen(kCudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

void* nvrtc() {
  static void* const library = ::dlopen(kNvrtc.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <typename Function>
Function* find(void* library, const std::string& file, const char* name) {
  auto* function = library == nullptr ? nullptr : ::dlsym(library, name);
  if (function == nullptr) failure("{}: the function {} is not on this machine", file, name);
  return reinterpret_cast<Function*>(function);
}

}  // namespace

template <typename Function>
Function* of_cudnn(const char* name) {
  return find<Function>(cudnn(), kCudnn, name);
}

template <typename Function>
Function* of_nvrtc(const char* name) {
  return find<Function>(nvrtc(), kNvrtc, name);
}

void open_cudnn() {
  if (cudnn() == nullptr)
    failure(
        "cuDNN: {} is not on this machine ('pip install nvidia-cudnn-cu{}' or your system's cuDNN "
        "{} brings it)",
        kCudnn, CUDART_VERSION / 1000, CUDNN_MAJOR);
}

}  // namespace qkscope::cuda

using qkscope::cuda::of_cudnn;
using qkscope::cuda::of_nvrtc;

std::size_t cudnnGetVersion() {
  return of_cudnn<decltype(cudnnGetVersion)>("cudnnGetVersion")();
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return of_cudnn<decltype(cudnnGetErrorString)>("cudnnGetErrorString")(status);
}

void cudnnGetLastErrorString(char* message, std::size_t size) {
  return of_cudnn<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString")(message, size);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return of_cudnn<decltype(cudnnCreate)>("cudnnCreate")(handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return of_cudnn<decltype(cudnnDestroy)>("cudnnDestroy")(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return of_cudnn<decltype(cudnnSetStream)>("cudnnSetStream")(handle, stream);
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return of_cudnn<decltype(cudnnGetStream)>("cudnnGetStream")(handle, stream);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return of_cudnn<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor")(
      type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return of_cudnn<decltype(cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor")(
      descriptor);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return of_cudnn<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize")(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements) {
  return of_cudnn<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute")(
      descriptor, name, type, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted,
                                       std::int64_t* count, void* elements) {
  return of_cudnn<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute")(
      descriptor, name, type, wanted, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  return of_cudnn<decltype(cudnnBackendExecute)>("cudnnBackendExecute")(handle, plan, pack);
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name,
                               int count, const char* const* headers, const char* const* names) {
  return of_nvrtc<decltype(nvrtcCreateProgram)>("nvrtcCreateProgram")(program, source, name, count,
                                                                      headers, names);
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  return of_nvrtc<decltype(nvrtcDestroyProgram)>("nvrtcDestroyProgram")(program);
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  return of_nvrtc<decltype(nvrtcCompileProgram)>("nvrtcCompileProgram")(program, count, options);
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  return of_nvrtc<decltype(nvrtcGetCUBINSize)>("nvrtcGetCUBINSize")(program, size);
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return of_nvrtc<decltype(nvrtcGetCUBIN)>("nvrtcGetCUBIN")(program, cubin);
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  return of_nvrtc<decltype(nvrtcGetProgramLogSize)>("nvrtcGetProgramLogSize")(program, size);
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return of_nvrtc<decltype(nvrtcGetProgramLog)>("nvrtcGetProgramLog")(program, log);
}
