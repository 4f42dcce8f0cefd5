#include <cmath>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/silu.cuh"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSteps = 2;

template <typename T, Activation activation>
__device__ float apply_activation(float x, const XieluWeights& xielu) {
  if constexpr (activation == Activation::silu) {
    if constexpr (sizeof(T) == 2) return silu_fast(x);
    return x / (1.0f + expf(-x));
  } else if constexpr (activation == Activation::gelu_tanh) {
    const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
  } else if constexpr (activation == Activation::relu2) {
    const float above = x < 0.0f ? 0.0f : x;  // NaN stays NaN
    return above * above;
  } else if constexpr (activation == Activation::sigmoid) {
    return 1.0f / (1.0f + expf(-x));
  } else if constexpr (activation == Activation::xielu) {
    // xIELU activation (arXiv:2411.13010), as in XieluWeights.
    if (x > 0.0f) return xielu.alpha_p * x * x + xielu.beta * x;
    return (expm1f(fminf(x, xielu.eps)) - x) * xielu.alpha_n + xielu.beta * x;
  } else {
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  }
}

// Clamped SwiGLU of gpt-oss, as in ClampedSwiglu. The comparisons let NaN pass through.
__device__ float clamped_swiglu(float gate, float up, const ClampedSwiglu& swiglu) {
  const float g = gate > swiglu.limit ? swiglu.limit : gate;
  const float below = up > swiglu.limit ? swiglu.limit : up;
  const float u = below < -swiglu.limit ? -swiglu.limit : below;
  return (u + 1.0f) * (g / (1.0f + expf(-swiglu.alpha * g)));
}

// Input and output rows of gated_activation_kernel(), in packs of V elements.
template <typename T>
struct GatedActivationRows {
  const T* gate;
  const T* up;
  T* y;
  int packs;   // per row
  int stride;  // packs from one row of `gate` or `up` to the next
};

// Each block processes part of one row, each thread kSteps packs of that part. No thread writes an
// element that another thread reads, so y may alias gate.
template <typename T, int V, Activation activation, bool kGated>
__global__ void gated_activation_kernel(GatedActivationRows<T> rows, XieluWeights xielu,
                                        ClampedSwiglu swiglu) {
  using Values = Pack<T, V>;
  const std::int64_t row = blockIdx.x;
  const int packs = rows.packs;
  const auto* gate = reinterpret_cast<const Values*>(rows.gate) + row * rows.stride;
  const auto* up = reinterpret_cast<const Values*>(rows.up) + row * rows.stride;
  auto* to = reinterpret_cast<Values*>(rows.y) + row * packs;
  const int first = static_cast<int>(blockIdx.y * kSteps * kThreads + threadIdx.x);
  Values g[kSteps], u[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int at = first + j * kThreads;
    if (at >= packs) continue;
    g[j] = gate[at];
    if constexpr (kGated) u[j] = up[at];
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int at = first + j * kThreads;
    if (at >= packs) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float x = to_float(g[j].values[i]);
      float value = 0.0f;
      if constexpr (activation == Activation::clamped_swiglu) {
        if constexpr (kGated) value = clamped_swiglu(x, to_float(u[j].values[i]), swiglu);
      } else {
        value = apply_activation<T, activation>(x, xielu);
        if constexpr (kGated) value *= to_float(u[j].values[i]);
      }
      g[j].values[i] = from_float<T>(value);
    }
    to[at] = g[j];
  }
}

// One warp per row.
template <typename T>
__global__ void row_gate_kernel(RowGateArguments a) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const T* x = static_cast<const T*>(a.x) + row * a.in;
  float sum = 0.0f;
  for (std::int64_t i = threadIdx.x % 32; i < a.in; i += 32)
    sum = fmaf(to_float(x[i]), to_float(static_cast<const T*>(a.weight)[i]), sum);
  const float gate = 1.0f / (1.0f + expf(-warp_sum(sum)));
  T* y = static_cast<T*>(a.y) + row * a.n;
  for (std::int64_t i = threadIdx.x % 32; i < a.n; i += 32)
    y[i] = from_float<T>(to_float(y[i]) * gate);
}

struct Clip {
  float limit;
  __device__ float operator()(float x) const { return fminf(fmaxf(x, -limit), limit); }
};
struct SoftCap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

template <typename T, typename Change>
__global__ void transform_values_kernel(T* x, std::int64_t count, Change change) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) x[i] = from_float<T>(change(to_float(x[i])));
}

template <typename Change>
void transform_values(void* x, std::int64_t count, Change change, DType dtype,
                      const char* operation, cudaStream_t stream) {
  launch_for_dtype(dtype, (count + kThreads - 1) / kThreads, operation,
                   [&](auto type, unsigned blocks) {
                     transform_values_kernel<<<blocks, kThreads, 0, stream>>>(
                         static_cast<decltype(type)*>(x), count, change);
                   });
}

constexpr int kGroup = 64;  // rows of gate and up in one interleaved group

// Reorders rows, one block per row; GateEpilogue in gated_kernel.cu describes the order.
__global__ void interleave_gate_up_kernel(const uint4* from, uint4* to, std::int64_t n, int packs) {
  const std::int64_t row = blockIdx.x;
  const int place = static_cast<int>(row % kGroup);
  const int neighbour = place % 8 / 2 * 8 + place / 8;
  const std::int64_t source = row / kGroup * (kGroup / 2) + neighbour + (place % 2 == 0 ? 0 : n);
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads)
    to[row * packs + i] = from[source * packs + i];
}

template <typename T, Activation activation, bool kGated>
void launch_gate_kernel(const MlpGateArguments& a, cudaStream_t stream) {
  dispatch_pack_size<T>(a.n % kPack<T> == 0, [&]<int V>() {
    const auto packs = static_cast<int>(a.n / V);
    constexpr int kPerBlock = kThreads * kSteps;
    const dim3 blocks(static_cast<unsigned>(a.rows),
                      static_cast<unsigned>((packs + kPerBlock - 1) / kPerBlock));
    const auto* gate = static_cast<const T*>(a.gate_up);
    const bool apart = !kGated || a.up != nullptr;
    const GatedActivationRows<T> rows{gate,
                                      a.up != nullptr ? static_cast<const T*>(a.up) : gate + a.n,
                                      static_cast<T*>(a.y), packs, apart ? packs : 2 * packs};
    gated_activation_kernel<T, V, activation, kGated>
        <<<blocks, kThreads, 0, stream>>>(rows, a.xielu, a.swiglu);
  });
}

template <typename T, bool kGated>
void launch_gate_kernel(const MlpGateArguments& a, cudaStream_t stream) {
  switch (a.activation) {
    case Activation::silu:
      return launch_gate_kernel<T, Activation::silu, kGated>(a, stream);
    case Activation::gelu_tanh:
      return launch_gate_kernel<T, Activation::gelu_tanh, kGated>(a, stream);
    case Activation::gelu:
      return launch_gate_kernel<T, Activation::gelu, kGated>(a, stream);
    case Activation::relu2:
      return launch_gate_kernel<T, Activation::relu2, kGated>(a, stream);
    case Activation::sigmoid:
      return launch_gate_kernel<T, Activation::sigmoid, kGated>(a, stream);
    case Activation::xielu:
      return launch_gate_kernel<T, Activation::xielu, kGated>(a, stream);
    case Activation::clamped_swiglu:
      return launch_gate_kernel<T, Activation::clamped_swiglu, kGated>(a, stream);
  }
}

constexpr int kWarp = 32;

// A selection score and its expert. NaN ranks like +infinity, before all other scores.
struct ExpertCandidate {
  float score;
  int expert;
};

__device__ float nan_to_infinity(float score) {
  return isnan(score) ? INFINITY : score;
}

__device__ bool ranks_before(ExpertCandidate a, ExpertCandidate b) {
  const float x = nan_to_infinity(a.score), y = nan_to_infinity(b.score);
  return x > y || (x == y && a.expert < b.expert);
}

// Router scores of all experts for one row; all lanes of a warp hold the same values.
template <typename T>
struct RouterScores {
  const T* logits;    // (experts)
  const float* bias;  // (experts) or null
  bool sigmoid;
  bool by_logit;  // without bias and groups, logits rank experts as scores do
  int group_size;
  const bool* excluded;  // (groups), or null without groups
  float highest = 0.0f;  // softmax: largest logit, and sum of exp(logit - highest)
  float sum = 1.0f;

  __device__ void prepare_softmax(int experts, int lane) {
    highest = -INFINITY;
    for (int e = lane; e < experts; e += kWarp) highest = fmaxf(highest, to_float(logits[e]));
    highest = warp_max(highest);
    sum = 0.0f;
    for (int e = lane; e < experts; e += kWarp) sum += expf(to_float(logits[e]) - highest);
    sum = warp_sum(sum);
  }
  __device__ float score(int expert) const {
    const float logit = to_float(logits[expert]);
    return sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - highest) / sum;
  }
  __device__ float selection_score(int expert) const {
    if (excluded != nullptr && excluded[expert / group_size]) return -INFINITY;
    if (by_logit) return to_float(logits[expert]);
    return score(expert) + (bias == nullptr ? 0.0f : bias[expert]);
  }
};

// Marks the expert groups that are not among the best; one lane per group.
template <typename T>
__device__ void exclude_expert_groups(const RouterScores<T>& scores, const ExpertsConfig& config,
                                      int lane, float* group_scores, bool* excluded) {
  const int groups = static_cast<int>(config.groups);
  for (int g = lane; g < groups; g += kWarp) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < scores.group_size; ++i) {
      const float score = scores.selection_score(g * scores.group_size + i);
      second = fmaxf(second, fminf(first, score));
      first = fmaxf(first, score);
    }
    group_scores[g] = config.group_maximum ? first : first + second;
  }
  __syncwarp();
  for (int g = lane; g < groups; g += kWarp) {
    int above = 0;
    for (int other = 0; other < groups; ++other)
      above += ranks_before({group_scores[other], other}, {group_scores[g], g}) ? 1 : 0;
    excluded[g] = above >= config.chosen_groups;
  }
  __syncwarp();
}

// Selects the top k experts of a row with one warp, one expert per round in descending order.
template <typename T>
__global__ void choose_experts_kernel(ChooseExpertsArguments a) {
  __shared__ float group_scores[kMostExpertGroups];
  __shared__ bool excluded[kMostExpertGroups];
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const int experts = static_cast<int>(a.config.count);
  const int k = static_cast<int>(a.config.per_token);
  const bool grouped = a.config.groups > 1;
  RouterScores<T> scores{.logits = static_cast<const T*>(a.logits) + row * experts,
                         .bias = a.bias,
                         .sigmoid = a.config.sigmoid,
                         .by_logit = a.bias == nullptr && !grouped,
                         .group_size = experts / static_cast<int>(a.config.groups),
                         .excluded = nullptr};
  if (!scores.sigmoid) scores.prepare_softmax(experts, lane);
  if (grouped) {
    exclude_expert_groups(scores, a.config, lane, group_scores, excluded);
    scores.excluded = excluded;
  }
  float* weights = a.weights + row * k;
  float* indices = a.indices + row * k;
  ExpertCandidate last{INFINITY, -1};
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) {
    ExpertCandidate best{-INFINITY, experts};
    for (int expert = lane; expert < experts; expert += kWarp) {
      const ExpertCandidate here{scores.selection_score(expert), expert};
      if (ranks_before(last, here) && ranks_before(here, best)) best = here;
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const ExpertCandidate other{__shfl_xor_sync(kAllLanes, best.score, offset),
                                  __shfl_xor_sync(kAllLanes, best.expert, offset)};
      if (ranks_before(other, best)) best = other;
    }
    const float weight = scores.score(best.expert);
    sum += weight;
    if (lane == 0) {
      indices[i] = static_cast<float>(best.expert);
      weights[i] = weight;
    }
    last = best;
  }
  const auto scale = static_cast<float>(a.config.weight_scale);
  const float factor = a.config.normalized ? scale / sum : scale;
  __syncwarp();
  for (int i = lane; i < k; i += kWarp) weights[i] *= factor;
}

constexpr int kGroupingThreads = 1024;

// Each block lists the slots of one expert, after the slots of all lower-numbered experts.
__global__ void group_slots_kernel(GroupSlotsArguments a) {
  __shared__ int first;
  __shared__ int warp_counts[kGroupingThreads / kWarp];
  const auto expert = static_cast<float>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  int below = 0;
  for (std::int64_t slot = thread; slot < a.count; slot += kGroupingThreads)
    below += a.indices[slot] < expert ? 1 : 0;
  if (thread == 0) first = 0;
  __syncthreads();
  atomicAdd(&first, below);
  __syncthreads();
  int next = first;
  if (thread == 0) a.begin[blockIdx.x] = first;
  for (std::int64_t begin = 0; begin < a.count; begin += kGroupingThreads) {
    const std::int64_t slot = begin + thread;
    const bool mine = slot < a.count && a.indices[slot] == expert;
    const unsigned votes = __ballot_sync(kAllLanes, mine);
    if (thread % kWarp == 0) warp_counts[thread / kWarp] = __popc(votes);
    const int found = __syncthreads_count(mine);
    if (mine) {
      int place = next + __popc(votes & ((1u << thread % kWarp) - 1));
      for (int warp = 0; warp < thread / kWarp; ++warp) place += warp_counts[warp];
      a.slots[place] = static_cast<std::int32_t>(slot);
      a.places[slot] = place;
    }
    next += found;
    __syncthreads();
  }
  if (thread == 0 && blockIdx.x + 1 == gridDim.x) a.begin[gridDim.x] = next;
}

template <typename T, int V>
__global__ void combine_experts_kernel(CombineExpertsArguments a) {
  using Values = Pack<T, V>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t packs = a.n / V;
  const auto* x = static_cast<const Values*>(a.x);
  auto* y = static_cast<Values*>(a.y) + row * packs;
  const std::int32_t* places = a.places + row * a.k;
  for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    float sums[V] = {};
    for (std::int64_t j = 0; j < a.k; ++j) {
      const float weight = a.weights == nullptr ? 1.0f : a.weights[row * a.k + j];
      const Values values = x[static_cast<std::int64_t>(places[j]) * packs + p];
#pragma unroll
      for (int i = 0; i < V; ++i) sums[i] += weight * to_float(values.values[i]);
    }
    Values values;
#pragma unroll
    for (int i = 0; i < V; ++i) values.values[i] = from_float<T>(a.factor * sums[i]);
    y[p] = values;
  }
}

}  // namespace

void apply_gate(const MlpGateArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.rows, "apply the MLP's activation", [&](auto type, unsigned) {
    using T = decltype(type);
    a.gated ? launch_gate_kernel<T, true>(a, stream) : launch_gate_kernel<T, false>(a, stream);
  });
}

void apply_row_gate(const RowGateArguments& a, cudaStream_t stream) {
  constexpr int kRows = kThreads / 32;
  launch_for_dtype(a.dtype, (a.rows + kRows - 1) / kRows, "gate the shared expert",
                   [&](auto type, unsigned blocks) {
                     row_gate_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
                   });
}

void clip(void* x, std::int64_t count, float limit, DType dtype, cudaStream_t stream) {
  transform_values(x, count, Clip{limit}, dtype, "clip q, k and v", stream);
}

void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream) {
  transform_values(x, count, SoftCap{cap}, dtype, "cap the logits", stream);
}

void interleave_gate_up(const void* from, void* to, std::int64_t n, std::int64_t in,
                        cudaStream_t stream) {
  const auto packs = static_cast<int>(in * 2 / static_cast<std::int64_t>(sizeof(uint4)));
  interleave_gate_up_kernel<<<static_cast<unsigned>(2 * n), kThreads, 0, stream>>>(
      static_cast<const uint4*>(from), static_cast<uint4*>(to), n, packs);
  check_launch("order the MLP's weights");
}

void choose_experts(const ChooseExpertsArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.rows, "choose experts", [&](auto type, unsigned blocks) {
    choose_experts_kernel<decltype(type)><<<blocks, kWarp, 0, stream>>>(a);
  });
}

void group_slots_by_expert(const GroupSlotsArguments& a, cudaStream_t stream) {
  group_slots_kernel<<<static_cast<unsigned>(a.experts), kGroupingThreads, 0, stream>>>(a);
  check_launch("group rows by expert");
}

void combine_experts(const CombineExpertsArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.rows, "add up what experts made", [&](auto type, unsigned blocks) {
    using T = decltype(type);
    dispatch_pack_size<T>(a.n % kPack<T> == 0, [&]<int V>() {
      combine_experts_kernel<T, V><<<blocks, kThreads, 0, stream>>>(a);
    });
  });
}

}  // namespace qkscope::cuda
