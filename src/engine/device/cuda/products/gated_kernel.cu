// CUTLASS GEMM, dense and grouped, with a custom epilogue that applies SwiGLU. Two consumer
// warpgroups alternate (ping-pong schedule): one runs the epilogue while the other multiplies.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/detail.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "engine/device/cuda/hopper_kernels.h"
#include "engine/device/cuda/products/silu.cuh"

namespace qkscope::cuda {
namespace {

using cute::Int;

// Tile and cluster shape: the fastest of ten variants tried on an H200
// (docs/reference/performance.md).
using Tile = cute::Shape<Int<128>, Int<192>, Int<64>>;
using Cluster = cute::Shape<Int<2>, Int<1>, Int<1>>;

// CUTLASS epilogue. Every 64 columns of a tile hold gate and up of 32 adjacent outputs: column
// 8 j + 2 t + s is gate (s = 0) or up (s = 1) of output 8 t + j. Thread t of the four that share a
// row therefore holds gate and up of eight adjacent outputs and writes these with one store.
template <typename Element, bool kGrouped>
struct GateEpilogue {
  using EpilogueSchedule = cutlass::gemm::EpilogueDefault;
  using DispatchPolicy = EpilogueSchedule;
  using ElementAccumulator = float;
  using ElementCompute = float;
  using ElementScalar = float;
  using ElementOutput = Element;
  using ElementC = Element;
  using ElementD = Element;
  using StrideC = cute::Stride<std::int64_t, Int<1>, std::int64_t>;
  using StrideD = StrideC;
  using InternalStrideC = StrideC;
  using InternalStrideD = StrideC;
  struct ThreadEpilogueOp {
    using ElementOutput = Element;
    using ElementD = Element;
    using ElementCompute = float;
    using ElementAccumulator = float;
    static constexpr int kCount = 8;
  };
  struct SharedStorage {};
  using TensorStorage = SharedStorage;
  struct Arguments {
    Element* y = nullptr;
    bool apart = false;
    const std::int32_t* begin = nullptr;  // (groups) first row of each group
    const Element* bias = nullptr;        // (2 n) of the first group, or null
    std::int64_t group_stride = 0;        // elements from one bias to the next
  };
  using Params = Arguments;

  template <typename Problem>
  static constexpr Params to_underlying_arguments(const Problem&, const Arguments& a, void*) {
    return a;
  }
  template <typename Problem>
  static std::size_t get_workspace_size(const Problem&, const Arguments&, int = 0) {
    return 0;
  }
  template <typename Problem>
  static cutlass::Status initialize_workspace(const Problem&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }
  template <typename Problem>
  static bool can_implement(const Problem&, const Arguments&) {
    return true;
  }

  CUTLASS_HOST_DEVICE explicit GateEpilogue(const Params& given,
                                            const SharedStorage& = SharedStorage())
      : params(given) {}

  template <typename Problem, typename Shape, typename Coordinates, typename Engine,
            typename Layout, typename Product, typename Residue>
  CUTLASS_DEVICE void operator()(Problem problem, Shape tile, Coordinates at,
                                 const cute::Tensor<Engine, Layout>& sums, Product, Residue,
                                 int thread, char*) {
    const int rows = cute::get<0>(problem);
    const int n = cute::get<1>(problem) / 2;
    constexpr int kColumns = decltype(cute::get<1>(tile))::value;
    const int lane = thread % 32;
    const int first_row = cute::get<0>(at) * cute::get<0>(tile) + thread / 32 * 16 + lane / 4;
    const int first_column = cute::get<1>(at) * (kColumns / 2) + 8 * (lane % 4);
    std::int64_t begin = 0;
    const Element* bias = nullptr;
    if constexpr (kGrouped) {
      const int number = cute::get<3>(at);
      begin = params.begin[number];
      if (params.bias != nullptr) bias = params.bias + number * params.group_stride;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < cute::size<1>(sums); ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + 64 * i + 8 * half;
        CUTLASS_PRAGMA_UNROLL
        for (int group = 0; group < kColumns / 64; ++group) {
          const int column = first_column + 32 * group;
          if (row >= rows || column >= n) continue;
          EightElements gate, up;
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < 8; ++j) {
            float g = sums(cute::make_coord(Int<0>{}, half, 8 * group + j), i, 0);
            float u = sums(cute::make_coord(Int<1>{}, half, 8 * group + j), i, 0);
            if (kGrouped && bias != nullptr) {
              g += float(bias[column + j]);
              u += float(bias[n + column + j]);
            }
            gate.values[j] = Element(g);
            up.values[j] = Element(u);
          }
          store_outputs(gate, up, begin + row, column, n);
        }
      }
    }
  }

 private:
  union EightElements {
    CUTLASS_DEVICE EightElements() : bits{} {}
    Element values[8];
    uint4 bits;
  };

  CUTLASS_DEVICE void store_outputs(EightElements& gate, const EightElements& up, std::int64_t row,
                                    int column, int n) const {
    const std::int64_t width = params.apart ? 2 * std::int64_t{n} : n;
    Element* to = params.y + row * width + column;
    if (params.apart) {
      *reinterpret_cast<uint4*>(to + n) = up.bits;
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < 8; ++j)
        gate.values[j] = Element(silu_fast(float(gate.values[j])) * float(up.values[j]));
    }
    *reinterpret_cast<uint4*>(to) = gate.bits;
  }

  Params params;
};

// CUTLASS kernel type. For a grouped kernel, the layout arguments are pointer types.
template <typename Element, typename Problem, typename RowMajor, typename ColumnMajor,
          typename Schedule, bool kGrouped>
using GatedKernel = cutlass::gemm::kernel::GemmUniversal<
    Problem,
    typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element,
        ColumnMajor, 8, float, Tile, Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<2048>, Schedule>::CollectiveOp,
    cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<
        GateEpilogue<Element, kGrouped>>>;

template <typename Kernel>
cudaError_t launch_gemm(const typename Kernel::Arguments& arguments, void* workspace,
                        cudaStream_t stream) {
  cutlass::gemm::device::GemmUniversalAdapter<Kernel> product;
  if (product.can_implement(arguments) != cutlass::Status::kSuccess) return cudaErrorNotSupported;
  if (product.initialize(arguments, workspace, stream) != cutlass::Status::kSuccess ||
      product.run(stream) != cutlass::Status::kSuccess) {
    const auto status = cudaGetLastError();
    return status == cudaSuccess ? cudaErrorUnknown : status;
  }
  return cudaGetLastError();
}

template <typename Element>
cudaError_t run_dense_gemm(const GatedGemmArguments& a, cudaStream_t stream) {
  using Kernel = GatedKernel<Element, cute::Shape<int, int, int, int>, cutlass::layout::RowMajor,
                             cutlass::layout::ColumnMajor,
                             cutlass::gemm::KernelTmaWarpSpecializedPingpong, false>;
  const auto rows_of = [&] { return cute::make_stride(a.in, Int<1>{}, std::int64_t{0}); };
  typename Kernel::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                       {int(a.rows), int(2 * a.n), int(a.in), 1},
                                       {static_cast<const Element*>(a.x), rows_of(),
                                        static_cast<const Element*>(a.weight), rows_of()},
                                       {static_cast<Element*>(a.y), a.apart}};
  arguments.hw_info.device_id = a.device;
  arguments.hw_info.sm_count = a.multiprocessors;
  // Swizzle: concurrently running blocks stay within a few tile columns, so that weights are served
  // from L2. Longer weight rows need a wider swizzle.
  arguments.scheduler.max_swizzle_size = a.in < 4096 ? 4 : 8;
  using Order = decltype(arguments.scheduler.raster_order);
  arguments.scheduler.raster_order = Order::AlongN;
  return launch_gemm<Kernel>(arguments, nullptr, stream);
}

// Per-group problem sizes, pointers and strides, which CUTLASS reads from device memory.
template <typename Element>
struct GemmGroupTable {
  using Problem = cute::Shape<int, int, int>;
  using RowStride = cute::Stride<std::int64_t, Int<1>, Int<0>>;
  Problem problems[kMostGroups];  // rows, 2 n, in
  const Element* x[kMostGroups];
  const Element* weights[kMostGroups];
  RowStride strides[kMostGroups];  // of rows of x and of weights
};

template <typename Element>
__global__ void fill_group_table(GatedGemmArguments a, GemmGroupTable<Element>* table) {
  const int group = int(threadIdx.x);
  if (group >= a.groups) return;
  const int begin = a.begin[group];
  table->problems[group] = {a.begin[group + 1] - begin, int(2 * a.n), int(a.in)};
  table->x[group] = static_cast<const Element*>(a.x) + begin * a.in;
  table->weights[group] = static_cast<const Element*>(a.weight) + group * a.group_stride;
  table->strides[group] = {a.in, Int<1>{}, Int<0>{}};
}

template <typename Element>
cudaError_t run_grouped_gemm(const GatedGemmArguments& a, cudaStream_t stream) {
  using Table = GemmGroupTable<Element>;
  using Kernel = GatedKernel<Element, cutlass::gemm::GroupProblemShape<typename Table::Problem>,
                             cutlass::layout::RowMajor*, cutlass::layout::ColumnMajor*,
                             cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong, true>;
  constexpr std::size_t kTableBytes = (sizeof(Table) + 255) / 256 * 256;
  auto* table = static_cast<Table*>(a.workspace);
  fill_group_table<<<1, kMostGroups, 0, stream>>>(a, table);
  typename Kernel::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGrouped,
                                       {a.groups, table->problems, nullptr},
                                       {table->x, table->strides, table->weights, table->strides},
                                       {static_cast<Element*>(a.y), a.apart, a.begin,
                                        static_cast<const Element*>(a.bias), a.group_stride}};
  arguments.hw_info.device_id = a.device;
  arguments.hw_info.sm_count = a.multiprocessors;
  if (kTableBytes + Kernel::get_workspace_size(arguments) > std::size_t(kGroupWorkspace))
    return cudaErrorNotSupported;
  return launch_gemm<Kernel>(arguments, static_cast<std::byte*>(a.workspace) + kTableBytes, stream);
}

}  // namespace

bool is_gated_gemm_built() {
  return true;
}

cudaError_t launch_gated_gemm(const GatedGemmArguments& a, cudaStream_t stream) {
  if (a.groups > 0)
    return a.bf16 ? run_grouped_gemm<cutlass::bfloat16_t>(a, stream)
                  : run_grouped_gemm<cutlass::half_t>(a, stream);
  return a.bf16 ? run_dense_gemm<cutlass::bfloat16_t>(a, stream)
                : run_dense_gemm<cutlass::half_t>(a, stream);
}

}  // namespace qkscope::cuda
