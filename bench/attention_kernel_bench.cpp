// Measures TFLOP/s of the attention kernels, each sustained for a second, alternating: FlashInfer's
// for Hopper, cuDNN's and our own. 16 heads on 4 key heads, bfloat16, causal, with and without a
// soft cap on scores. FLOP count unmasked pairs only: 4 per query, key, head and element. Prints
// the rows of a table.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kHeads = 16, kKeyHeads = 4, kMostRows = 131072, kLargestHead = 256;
constexpr double kSeconds = 1;

// Allocates device memory that is never freed.
template <typename T>
T* on_device(const std::vector<T>& values) {
  void* data = nullptr;
  check(cudaMalloc(&data, values.size() * sizeof(T)), "cudaMalloc");
  check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return static_cast<T*>(data);
}

// Random rows, because zeros run faster than real data.
std::vector<Bf16> random_values(std::int64_t count) {
  std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  std::vector<Bf16> pool(1 << 20), values(static_cast<std::size_t>(count));
  for (auto& value : pool) value = to_bf16(normal(generator));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = pool[(i + i / 77777) % pool.size()];
  return values;
}

float milliseconds(int times, const std::function<void()>& attend) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  check(cudaEventRecord(start), "cudaEventRecord");
  for (int i = 0; i < times; ++i) attend();
  check(cudaEventRecord(stop), "cudaEventRecord");
  check(cudaEventSynchronize(stop), "attention");
  float time = 0.0f;
  check(cudaEventElapsedTime(&time, start, stop), "cudaEventElapsedTime");
  return time / static_cast<float>(times);
}

float sustained(const std::function<void()>& attend) {
  milliseconds(2, attend);
  const float once = milliseconds(2, attend);
  return milliseconds(std::max(3, static_cast<int>(kSeconds * 1000 / once)), attend);
}

struct Heads {
  std::int64_t size;
  double softcap;  // 0: none
};

void run(std::int64_t documents, std::int64_t length, const Heads& heads, const Bf16* qkv,
         Bf16* z) {
  const auto d_head = heads.size;
  ModelConfig model;
  model.n_heads = kHeads;
  model.n_kv_heads = kKeyHeads;
  model.d_head = d_head;
  model.attention_softcap = heads.softcap;
  model.attention_scale = 1 / std::sqrt(static_cast<double>(d_head));
  const auto stride = (kHeads + 2 * kKeyHeads) * d_head;
  AttentionArguments arguments{{.q = qkv,
                                .k = qkv + kHeads * d_head,
                                .row_stride = stride,
                                .k_stride = stride,
                                .n_heads = kHeads,
                                .n_kv_heads = kKeyHeads,
                                .d_head = d_head,
                                .scale = static_cast<float>(model.attention_scale),
                                .softcap = static_cast<float>(heads.softcap),
                                .dtype = DType::bf16}};
  arguments.v = qkv + (kHeads + kKeyHeads) * d_head;
  arguments.z = z;
  arguments.v_stride = stride;
  arguments.z_stride = kHeads * d_head;
  arguments.queries = documents * length;
  arguments.d_value = d_head;
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> begins, last;
  for (std::int64_t i = 0; i < documents; ++i) sequences.push_back({i * length, length});
  for (std::int64_t row = 0; row < documents * length; ++row) {
    begins.push_back(static_cast<std::int32_t>(row / length * length));
    last.push_back(static_cast<std::int32_t>(row));
  }
  const auto seen = static_cast<double>(documents) * static_cast<double>(length) *
                    static_cast<double>(length + 1) / 2;
  const auto operations = 4.0 * static_cast<double>(kHeads * d_head) * seen;
  const auto show = [&](const std::function<void()>& attend) {
    fmt::print(" {:.0f} |", operations / sustained(attend) * 1e-9);
  };
  fmt::print("| {} x {}, heads of {}{} |", documents, length, d_head,
             heads.softcap > 0 ? " with a cap" : "");

  HopperAttention hopper(model, DType::bf16, 0, nullptr);
  if (hopper.has_kernel()) {
    hopper.set_sequences(sequences);
    show([&] { hopper.attend(arguments); });
  } else {
    fmt::print(" |");
  }
  CudnnAttention cudnn(model, DType::bf16, 0, nullptr);
  cudnn.set_sequences(sequences);
  if (heads.softcap == 0 && cudnn.try_attend(arguments))
    show([&] { cudnn.try_attend(arguments); });
  else
    fmt::print(" |");
  arguments.first_key = arguments.sequence_begin = on_device(begins);
  arguments.last_key = on_device(last);
  show([&] { compute_attention(arguments, nullptr); });
  fmt::print("\n");
}

void run_all() {
  const auto* qkv = on_device(random_values(kMostRows * (kHeads + 2 * kKeyHeads) * kLargestHead));
  auto* z =
      on_device(std::vector<Bf16>(static_cast<std::size_t>(kMostRows * kHeads * kLargestHead)));
  fmt::print("| TFLOP/s | FlashInfer | cuDNN | ours |\n| --- | --- | --- | --- |\n");
  for (const auto& heads :
       std::vector<Heads>{{128, 0}, {64, 0}, {96, 0}, {256, 0}, {128, 50}, {256, 50}}) {
    run(8, 4096, heads, qkv, z);
    run(1, 32768, heads, qkv, z);
    if (heads.size == 128 && heads.softcap == 0) run(64, 512, heads, qkv, z);
    if (heads.size == 128 && heads.softcap == 0) run(1, 65536, heads, qkv, z);
    run(1, kMostRows, heads, qkv, z);
  }
}

}  // namespace
}  // namespace qkscope::cuda

int main() {
  try {
    qkscope::cuda::run_all();
  } catch (const qkscope::Error& error) {
    fmt::print(stderr, "attention_kernel_bench: {}\n", error.what());
    return error.exit_code();
  }
}
