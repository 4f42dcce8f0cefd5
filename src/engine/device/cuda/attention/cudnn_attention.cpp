#include <algorithm>
#include <compare>
#include <future>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/thread_pool.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

enum TensorId : std::int64_t { kQ = 1, kK, kV, kZ, kLengths, kOffsets, kOutputOffsets };

// cuDNN and NVRTC are opened on first use, so that the module loads on machines without them.
const std::string kCudnn = fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
const std::string kNvrtc = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);

void* cudnn_library() {
  static void* const library = ::dlopen(kCudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

void* nvrtc_library() {
  static void* const library = ::dlopen(kNvrtc.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <typename Function>
Function* find_library_function(void* library, const std::string& file, const char* name) {
  auto* function = library == nullptr ? nullptr : ::dlsym(library, name);
  if (function == nullptr) throw_failure("{}: the function {} is not on this machine", file, name);
  return reinterpret_cast<Function*>(function);
}

void require_cudnn() {
  if (cudnn_library() == nullptr)
    throw_failure(
        "cuDNN: {} is not on this machine ('pip install nvidia-cudnn-cu{}' or your system's cuDNN "
        "{} brings it)",
        kCudnn, CUDART_VERSION / 1000, CUDNN_MAJOR);
}

void check_cudnn(cudnnStatus_t status, const char* operation) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw_failure("cuDNN: {} failed: {}", operation, cudnnGetErrorString(status));
}

// Sequence lengths are rounded up to this step, so that similar batches share a cuDNN plan.
constexpr std::int64_t kLengthStep = 1024;
// Texts of equal length get a plan for exactly that length. Each plan holds compiled kernels, so
// only the most recently used plans are kept when a run has texts of many lengths.
constexpr std::size_t kMostPlans = 64;
constexpr std::int64_t kFirstLength = 4096;  // length of the plan that is built while weights load

}  // namespace

struct CudnnAttention::Impl {
  // Cache key of a cuDNN plan.
  struct PlanKey {
    std::int64_t sequences, length, window;
    bool ragged;
    auto operator<=>(const PlanKey&) const = default;
  };
  struct Plan {
    std::shared_ptr<fe::graph::Graph> graph;  // null: not supported
    std::int64_t workspace = 0;
    std::uint64_t last_use = 0;
  };

  Impl(const ModelConfig& model_, DType dtype_, cudaStream_t stream_)
      : model(model_),
        dtype(dtype_),
        row_stride(model_.n_heads * model_.d_head +
                   model_.n_kv_heads * (model_.d_head + model_.d_value())),
        z_stride(model_.n_heads * model_.d_value()),
        stream(stream_) {}
  ~Impl() {
    if (started.valid()) started.wait();
    if (handle != nullptr) cudnnDestroy(handle);
  }

  bool supports_model() const {
    return !failed && (dtype == DType::bf16 || dtype == DType::f16) && model.d_head % 8 == 0 &&
           model.d_value() % 8 == 0 && model.d_head <= 256;
  }

  // Opens cuDNN on `device` and builds a first plan, because that loads cuDNN's kernels.
  void start_cudnn(int device) {
    require_cudnn();
    check(cudaSetDevice(device), "use the GPU");
    check_cudnn(cudnnCreate(&handle), "start");
    check_cudnn(cudnnSetStream(handle, stream), "set the stream");
    const PlanKey first{1, kFirstLength, 0, false};
    plans[first] = make_plan(first);
  }

  // If cuDNN fails to start, attention falls back to the built-in kernel.
  void wait_for_start() {
    if (!started.valid()) return;
    try {
      started.get();
    } catch (const Error& error) {
      failed = true;
      log::warn("{}; attention uses our own kernel, which is slower on Hopper", error.what());
    }
  }

  const Plan& find_or_make_plan(std::int64_t window) {
    const auto length = ragged ? (longest + kLengthStep - 1) / kLengthStep * kLengthStep : longest;
    const PlanKey key{static_cast<std::int64_t>(sequences.size()), length,
                      window >= longest ? 0 : window, ragged};
    if (!plans.contains(key)) {
      if (plans.size() >= kMostPlans) remove_oldest_plan();
      plans[key] = make_plan(key);
    }
    auto& plan = plans[key];
    plan.last_use = ++uses;
    return plan;
  }

  // Evicts the least recently used plan. Waits first, because eviction unloads the plan's kernels.
  void remove_oldest_plan() {
    check(cudaStreamSynchronize(stream), "wait for attention");
    plans.erase(std::min_element(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    }));
  }

  Plan make_plan(const PlanKey& key) const;
  void upload_sequences();

  const ModelConfig& model;
  DType dtype;
  std::int64_t row_stride;  // elements from one row of q, k and v to the next
  std::int64_t z_stride;
  cudaStream_t stream;
  std::future<void> started;
  bool failed = false;
  cudnnHandle_t handle = nullptr;
  std::map<PlanKey, Plan> plans;
  std::uint64_t uses = 0;
  DeviceMemory workspace;

  std::vector<Sequence> sequences;
  std::int64_t longest = 0;
  bool ragged = false;
  bool uploaded = false;
  UploadBuffer sequence_offsets;  // int32: lengths, offsets in q, k and v, offsets in z
};

CudnnAttention::CudnnAttention(const ModelConfig& model, DType dtype, int device,
                               cudaStream_t stream)
    : impl_(std::make_unique<Impl>(model, dtype, stream)) {
  auto& l = *impl_;
  if (l.supports_model()) l.started = run_in_background([&l, device] { l.start_cudnn(device); });
}

CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::set_sequences(std::span<const Sequence> sequences) {
  auto& l = *impl_;
  l.wait_for_start();
  l.sequences.assign(sequences.begin(), sequences.end());
  l.longest = 0;
  for (const auto& sequence : sequences) l.longest = std::max(l.longest, sequence.length);
  l.ragged = std::any_of(sequences.begin(), sequences.end(),
                         [&](const Sequence& sequence) { return sequence.length != l.longest; });
  l.uploaded = false;
}

CudnnAttention::Impl::Plan CudnnAttention::Impl::make_plan(const PlanKey& key) const {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(dtype == DType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto numbers = [&](TensorId name, const char* text, std::int64_t count) {
    return graph->tensor(Tensor_attributes()
                             .set_name(text)
                             .set_uid(name)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  };
  const auto offsets = key.ragged ? numbers(kOffsets, "offsets", key.sequences + 1) : nullptr;
  const auto input = [&](TensorId name, const char* text, std::int64_t heads, std::int64_t width) {
    auto attributes = Tensor_attributes()
                          .set_name(text)
                          .set_uid(name)
                          .set_dim({key.sequences, heads, key.length, width})
                          .set_stride({key.length * row_stride, width, row_stride, 1});
    if (offsets) attributes.set_ragged_offset(offsets);
    return graph->tensor(attributes);
  };
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(false)
                     .set_attn_scale(static_cast<float>(model.attention_scale))
                     .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                     .set_diagonal_band_right_bound(0);
  if (key.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(key.window));
  if (key.ragged) {
    const auto lengths = numbers(kLengths, "lengths", key.sequences);
    options.set_padding_mask(true).set_seq_len_q(lengths).set_seq_len_kv(lengths);
  }
  const auto q = input(kQ, "q", model.n_heads, model.d_head);
  const auto k = input(kK, "k", model.n_kv_heads, model.d_head);
  const auto v = input(kV, "v", model.n_kv_heads, model.d_value());
  auto outputs = graph->sdpa(q, k, v, options);
  auto& z = outputs[0];
  z->set_output(true)
      .set_uid(kZ)
      .set_dim({key.sequences, model.n_heads, key.length, model.d_value()})
      .set_stride({key.length * z_stride, model.d_value(), z_stride, 1});
  if (key.ragged)
    z->set_ragged_offset(numbers(kOutputOffsets, "output offsets", key.sequences + 1));
  auto status = graph->build(handle, {fe::HeurMode_t::A});
  if (status.is_bad()) {
    log::debug("cuDNN has no attention for {} documents of {} tokens: {}", key.sequences,
               key.length, status.get_message());
    return {};
  }
  return {graph, graph->get_workspace_size()};
}

void CudnnAttention::Impl::upload_sequences() {
  if (!ragged || uploaded) return;
  const auto count = sequences.size();
  std::vector<std::int32_t> numbers;
  for (const auto& sequence : sequences)
    numbers.push_back(static_cast<std::int32_t>(sequence.length));
  for (const auto stride : {row_stride, z_stride}) {
    for (const auto& sequence : sequences)
      numbers.push_back(static_cast<std::int32_t>(sequence.begin * stride));
    const auto& last = sequences.back();
    numbers.push_back(static_cast<std::int32_t>((last.begin + last.length) * stride));
  }
  QKSCOPE_ASSERT(numbers.size() == count + 2 * (count + 1));
  sequence_offsets.upload(numbers, "lengths of documents", stream);
  uploaded = true;
}

bool CudnnAttention::try_attend(const AttentionArguments& a) {
  auto& l = *impl_;
  const auto& last = l.sequences.back();
  const bool countable = (last.begin + last.length) * std::max(l.row_stride, l.z_stride) <=
                         std::numeric_limits<std::int32_t>::max();
  if (!l.supports_model() || (l.ragged && !countable)) return false;
  const auto& plan = l.find_or_make_plan(a.window);
  if (!plan.graph) return false;
  l.upload_sequences();
  const auto count = l.sequences.size();
  auto* lengths = l.sequence_offsets.as<std::int32_t>();
  std::unordered_map<std::int64_t, void*> tensors = {{kQ, const_cast<void*>(a.q)},
                                                     {kK, const_cast<void*>(a.k)},
                                                     {kV, const_cast<void*>(a.v)},
                                                     {kZ, a.z}};
  if (l.ragged) {
    tensors[kLengths] = lengths;
    tensors[kOffsets] = lengths + count;
    tensors[kOutputOffsets] = lengths + 2 * count + 1;
  }
  auto* workspace = l.workspace.reserve(std::max<std::int64_t>(plan.workspace, 1), "attention");
  auto status = plan.graph->execute(l.handle, tensors, workspace);
  if (status.is_bad()) throw_failure("cuDNN: attention failed: {}", status.get_message());
  return true;
}

}  // namespace qkscope::cuda

// Functions of cuDNN and NVRTC that cudnn-frontend calls by name, forwarded to the opened library.
#define QKSCOPE_FORWARD_CUDNN(result, name, parameters, ...)                        \
  result name parameters {                                                          \
    return qkscope::cuda::find_library_function<decltype(name)>(                    \
        qkscope::cuda::cudnn_library(), qkscope::cuda::kCudnn, #name)(__VA_ARGS__); \
  }
#define QKSCOPE_FORWARD_NVRTC(name, parameters, ...)                                \
  nvrtcResult name parameters {                                                     \
    return qkscope::cuda::find_library_function<decltype(name)>(                    \
        qkscope::cuda::nvrtc_library(), qkscope::cuda::kNvrtc, #name)(__VA_ARGS__); \
  }

// clang-format off
QKSCOPE_FORWARD_CUDNN(std::size_t, cudnnGetVersion, ())
QKSCOPE_FORWARD_CUDNN(const char*, cudnnGetErrorString, (cudnnStatus_t status), status)
QKSCOPE_FORWARD_CUDNN(void, cudnnGetLastErrorString,
                      (char* message, std::size_t size), message, size)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnCreate, (cudnnHandle_t* handle), handle)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), handle)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnSetStream,
                      (cudnnHandle_t handle, cudaStream_t stream), handle, stream)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnGetStream,
                      (cudnnHandle_t handle, cudaStream_t* stream), handle, stream)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnBackendCreateDescriptor,
                      (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor),
                       type, descriptor)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnBackendDestroyDescriptor,
                      (cudnnBackendDescriptor_t descriptor), descriptor)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnBackendFinalize,
                      (cudnnBackendDescriptor_t descriptor), descriptor)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnBackendSetAttribute,
                      (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, std::int64_t count, const void* elements),
                       descriptor, name, type, count, elements)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnBackendGetAttribute,
                      (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, std::int64_t wanted, std::int64_t* count,
                       void* elements), descriptor, name, type, wanted, count, elements)
QKSCOPE_FORWARD_CUDNN(cudnnStatus_t, cudnnBackendExecute,
                      (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                       cudnnBackendDescriptor_t pack), handle, plan, pack)
QKSCOPE_FORWARD_NVRTC(nvrtcCreateProgram,
                      (nvrtcProgram* program, const char* source, const char* name, int count,
                       const char* const* headers, const char* const* names), program, source, name,
                       count, headers, names)
QKSCOPE_FORWARD_NVRTC(nvrtcDestroyProgram, (nvrtcProgram* program), program)
QKSCOPE_FORWARD_NVRTC(nvrtcCompileProgram,
                      (nvrtcProgram program, int count, const char* const* options), program, count,
                       options)
QKSCOPE_FORWARD_NVRTC(nvrtcGetCUBINSize, (nvrtcProgram program, std::size_t* size), program, size)
QKSCOPE_FORWARD_NVRTC(nvrtcGetCUBIN, (nvrtcProgram program, char* cubin), program, cubin)
QKSCOPE_FORWARD_NVRTC(nvrtcGetProgramLogSize,
                      (nvrtcProgram program, std::size_t* size), program, size)
QKSCOPE_FORWARD_NVRTC(nvrtcGetProgramLog, (nvrtcProgram program, char* log), program, log)
// clang-format on
