#include "engine/device/cuda/products/products.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include <cublasLt.h>

#include "base/core/error.h"
#include "engine/device/cuda/compare.h"
#include "engine/device/cuda/cuda_error.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kWorkspace = std::int64_t{64} << 20;
constexpr int kCandidates = 8;
constexpr int kRepeats = 3;
// Algorithms are timed at row counts that are powers of two in this range; a product uses the
// algorithm of the next smaller count. Below the range cuBLASLt's first heuristic is used.
constexpr std::int64_t kFewestMeasuredRows = 512;
constexpr std::int64_t kMostMeasuredRows = 16384;
constexpr std::size_t kMostShapes = 256;  // size of the algorithm cache
// Number of rows that are compared to see whether two algorithms sum in the same order.
constexpr std::int64_t kComparedRows = 512;

void check(cublasStatus_t status, const char* operation) {
  if (status != CUBLAS_STATUS_SUCCESS)
    failure("cuBLASLt: {} failed: {} ({})", operation, cublasLtGetStatusString(status),
            static_cast<int>(status));
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

struct Layout {
  Layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), stride),
          "describe a matrix");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t layout = nullptr;
};

}  // namespace

struct Products::Library {
  Library() { check(cublasLtCreate(&handle), "start"); }
  ~Library() { cublasLtDestroy(handle); }
  cublasLtHandle_t handle = nullptr;
};

struct Products::Algorithm {
  cublasLtMatmulAlgo_t algo;
};

// cuBLASLt is column-major: its matrices are ours transposed, so y (rows, out) is the (out x rows)
// product of the transposed weight and x.
struct Products::Call {
  Call(DType dtype, const Product& p)
      : weight(type_of(dtype), p.in, p.out, p.in),
        x(type_of(dtype), p.in, p.rows, p.x_stride),
        y(type_of(dtype), p.out, p.rows, p.y_stride) {
    check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describe a product");
    const auto transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (p.bias == nullptr) return;
    const auto epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias);
  }
  ~Call() { cublasLtMatmulDescDestroy(description); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void set(cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t bytes) {
    check(cublasLtMatmulDescSetAttribute(description, attribute, value, bytes),
          "describe a product");
  }

  cublasLtMatmulDesc_t description = nullptr;
  Layout weight;
  Layout x;
  Layout y;
  Algorithm algorithm{};
};

Products::Products(DType dtype, cudaStream_t stream)
    : dtype_(dtype), stream_(stream), library_(std::make_unique<Library>()) {
  workspace_.reserve(kWorkspace, "matrix products");
}

Products::~Products() = default;

void Products::multiply(const Product& product) {
  if (product.rows == 0) return;
  auto& call = call_for(product);
  if (product.bias != nullptr)
    call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product.bias, sizeof product.bias);
  run(call, product);
}

Products::Key Products::key_of(const Product& p) {
  return {p.rows, p.in, p.out, p.x_stride, p.y_stride, p.bias != nullptr, p.accumulate};
}

Products::Call& Products::call_for(const Product& product) {
  const auto key = key_of(product);
  const auto found = calls_.find(key);
  if (found != calls_.end()) return *found->second;
  if (calls_.size() >= kMostShapes) calls_.clear();
  auto call = std::make_unique<Call>(dtype_, product);
  call->algorithm = algorithm_for(product, *call);
  return *(calls_[key] = std::move(call));
}

Products::Algorithm Products::algorithm_for(const Product& product, const Call& call) {
  if (product.rows >= kFewestMeasuredRows) {
    Product rounded = product;
    rounded.rows = std::min(
        kMostMeasuredRows,
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(product.rows))));
    const auto key = key_of(rounded);
    if (!measured_.contains(key)) measured_[key] = measured(rounded);
    if (runs(call, measured_[key])) return measured_[key];
  }
  return candidates(call).front();
}

std::vector<Products::Algorithm> Products::candidates(const Call& call) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "look for algorithms");
  const auto bytes = static_cast<std::size_t>(kWorkspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                       sizeof bytes);
  const std::uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                       &no_split, sizeof no_split);
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      library_->handle, call.description, call.weight.layout, call.x.layout, call.y.layout,
      call.y.layout, preference, kCandidates, found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "look for algorithms");
  if (count == 0) failure("cuBLASLt: no algorithm for a product");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i) algorithms.push_back({found[i].algo});
  return algorithms;
}

// Discards candidates whose summation order differs from the first candidate's. Timing noise may
// then change which algorithm wins, but never a bit of the result.
Products::Algorithm Products::measured(const Product& product) {
  Product trial = product;  // writes to scratch: y may be an accumulation target
  trial.accumulate = false;
  trial.y_stride = product.out;
  const auto row_bytes = product.out * static_cast<std::int64_t>(dtype_size(dtype_));
  const auto compared = std::min(product.rows, kComparedRows) * row_bytes;
  DeviceBlock scratch;
  DeviceBlock expected;
  trial.y = scratch.reserve(product.rows * row_bytes, "trial products");
  expected.reserve(compared, "trial products");
  Call call(dtype_, trial);
  const auto choices = candidates(call);
  auto best = choices.front();
  double shortest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    call.algorithm = choices[i];
    run(call, trial);
    const double seconds = seconds_of([&] { run(call, trial); }, kRepeats, stream_);
    if (i == 0)
      cuda::check(cudaMemcpyAsync(expected.data(), trial.y, static_cast<std::size_t>(compared),
                                  cudaMemcpyDeviceToDevice, stream_),
                  "keep a trial product");
    else if (!same_bytes(expected.data(), trial.y, compared, stream_))
      continue;
    if (seconds >= shortest) continue;
    shortest = seconds;
    best = choices[i];
  }
  return best;
}

bool Products::runs(const Call& call, const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(library_->handle, call.description, call.weight.layout,
                                 call.x.layout, call.y.layout, call.y.layout, &algorithm.algo,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(kWorkspace);
}

void Products::run(const Call& call, const Product& product) {
  const float beta = product.accumulate ? 1.0f : 0.0f;
  check(cublasLtMatmul(library_->handle, call.description, &product.factor, product.weight,
                       call.weight.layout, product.x, call.x.layout, &beta, product.y,
                       call.y.layout, product.y, call.y.layout, &call.algorithm.algo,
                       workspace_.data(), static_cast<std::size_t>(kWorkspace), stream_),
        "multiply matrices");
}

}  // namespace qkscope::cuda
