// TFLOP/s of our attention kernel on the device: 16 heads of 128 on 4 key heads, bfloat16, causal.
// Counts the products a causal mask leaves, 4 x 128 per query, seen key and head. One line per
// size.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "core/convert.h"
#include "core/error.h"
#include "device/cuda/attention_kernel.h"
#include "device/cuda/cuda_error.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kHeads = 16, kKeyHeads = 4, kHeadSize = 128;
constexpr std::int64_t kFused = (kHeads + 2 * kKeyHeads) * kHeadSize;  // q, k, v side by side
constexpr int kWarmUps = 3, kRepeats = 11;

// Device memory until the program ends.
template <typename T>
T* on_device(const std::vector<T>& values) {
  void* data = nullptr;
  check(cudaMalloc(&data, values.size() * sizeof(T)), "cudaMalloc");
  check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return static_cast<T*>(data);
}

// Random rows: zeros run faster than real data.
std::vector<Bf16> random_rows(std::int64_t rows) {
  std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  std::vector<Bf16> pool(1 << 20), values(static_cast<std::size_t>(rows * kFused));
  for (auto& value : pool) value = to_bf16(normal(generator));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = pool[(i + i / 77777) % pool.size()];
  return values;
}

float milliseconds(const AttentionArguments& arguments) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    check(cudaEventRecord(start), "cudaEventRecord");
    attention(arguments, nullptr);
    check(cudaEventRecord(stop), "cudaEventRecord");
    check(cudaEventSynchronize(stop), "attention");
    float time = 0.0f;
    check(cudaEventElapsedTime(&time, start, stop), "cudaEventElapsedTime");
    if (i >= kWarmUps) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run(std::int64_t documents, std::int64_t length, Bf16* qkv, Bf16* z) {
  std::vector<std::int32_t> sequence, last;
  for (std::int64_t row = 0; row < documents * length; ++row) {
    sequence.push_back(static_cast<std::int32_t>(row / length * length));
    last.push_back(static_cast<std::int32_t>(row));
  }
  const auto* sequence_begin = on_device(sequence);
  const auto time = milliseconds({.q = qkv,
                                  .k = qkv + kHeads * kHeadSize,
                                  .v = qkv + (kHeads + kKeyHeads) * kHeadSize,
                                  .z = z,
                                  .q_stride = kFused,
                                  .k_stride = kFused,
                                  .v_stride = kFused,
                                  .z_stride = kHeads * kHeadSize,
                                  .first_key = sequence_begin,
                                  .last_key = on_device(last),
                                  .sequence_begin = sequence_begin,
                                  .queries = documents * length,
                                  .n_heads = kHeads,
                                  .n_kv_heads = kKeyHeads,
                                  .d_head = kHeadSize,
                                  .scale = 0.0884f,
                                  .dtype = DType::bf16});
  const auto seen = static_cast<double>(documents) * static_cast<double>(length) *
                    static_cast<double>(length + 1) / 2;
  const auto operations = 4.0 * static_cast<double>(kHeads * kHeadSize) * seen;
  fmt::print("{} x {:6} tokens: {:9.3f} ms, {:6.1f} TFLOP/s\n", documents, length, time,
             operations / time * 1e-9);
}

void run_all() {
  constexpr std::int64_t kMostRows = 131072;
  auto* qkv = on_device(random_rows(kMostRows));
  auto* z = on_device(std::vector<Bf16>(static_cast<std::size_t>(kMostRows * kHeads * kHeadSize)));
  run(8, 4096, qkv, z);
  run(1, 32768, qkv, z);
  run(1, 131072, qkv, z);
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
