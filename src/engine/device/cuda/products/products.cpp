#include "engine/device/cuda/products/products.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kWorkspace = std::int64_t{64} << 20;
static_assert(kWorkspace >= kGroupWorkspace);
constexpr int kCandidates = 8;
constexpr int kRepeats = 3;
// Algorithms are timed at row counts that are powers of two in this range; a product uses the
// algorithm of the next smaller count. Below the range cuBLASLt's first heuristic is used.
constexpr std::int64_t kFewestMeasuredRows = 512;
constexpr std::int64_t kMostMeasuredRows = 16384;
constexpr std::size_t kMostShapes = 256;  // size of the algorithm cache
// Number of rows on which two algorithms are compared, to detect a different summation order.
constexpr std::int64_t kComparedRows = 512;
// Matrix sizes of measure_flop_rate().
constexpr std::int64_t kLargestMeasured = 8192;
constexpr std::int64_t kSmallestMeasured = 512;
constexpr int kProductsPerReading = 8;  // products between two readings of the clock

void check(cublasStatus_t status, const char* operation) {
  if (status != CUBLAS_STATUS_SUCCESS)
    failure("cuBLASLt: {} failed: {} ({})", operation, cublasLtGetStatusString(status),
            static_cast<int>(status));
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// Random values, |x| in [0.5, 1): constant operands draw less power and overstate the rate.
std::vector<std::uint32_t> random_values(DType dtype, std::size_t bytes) {
  std::uint32_t bits = 0x3f000000u;  // bit pattern of 0.5f
  std::uint32_t free_bits = 0x807fffffu;
  if (dtype == DType::bf16) {
    bits = 0x3f003f00u;
    free_bits = 0x807f807fu;
  } else if (dtype == DType::f16) {
    bits = 0x38003800u;
    free_bits = 0x83ff83ffu;
  }
  std::mt19937 generator(0);
  std::vector<std::uint32_t> values(bytes / sizeof(std::uint32_t));
  for (auto& value : values) value = bits | (static_cast<std::uint32_t>(generator()) & free_bits);
  return values;
}

// Returns the largest matrix size whose operands and results fit into half of the free memory.
std::int64_t matrix_size_that_fits(std::int64_t element) {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "ask for free memory");
  auto size = kLargestMeasured;
  while (size > kSmallestMeasured &&
         4 * size * size * element > static_cast<std::int64_t>(free / 2))
    size /= 2;
  return size;
}

std::int64_t y_stride(const MatrixProduct& product) {
  return product.y_stride > 0 ? product.y_stride : product.linear.out;
}

struct MatrixLayout {
  MatrixLayout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), stride),
          "describe a matrix");
  }
  ~MatrixLayout() { cublasLtMatrixLayoutDestroy(layout); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  cublasLtMatrixLayout_t layout = nullptr;
};

}  // namespace

// cuBLASLt is column-major: y (rows, out) is the (out x rows) product of transposed weight and x.
struct MatrixMultiplier::Call {
  Call(DType dtype, const MatrixProduct& p)
      : weight(type_of(dtype), p.linear.in, p.linear.out, p.linear.in),
        x(type_of(dtype), p.linear.in, p.rows, p.linear.in),
        y(type_of(dtype), p.linear.out, p.rows, y_stride(p)) {
    check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describe a product");
    const auto transposed = CUBLAS_OP_T;
    set_attribute(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (p.linear.bias == nullptr) return;
    const auto epilogue = CUBLASLT_EPILOGUE_BIAS;
    set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.linear.bias, sizeof p.linear.bias);
  }
  ~Call() { cublasLtMatmulDescDestroy(description); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void set_attribute(cublasLtMatmulDescAttributes_t attribute, const void* value,
                     std::size_t bytes) {
    check(cublasLtMatmulDescSetAttribute(description, attribute, value, bytes),
          "describe a product");
  }

  cublasLtMatmulDesc_t description = nullptr;
  MatrixLayout weight;
  MatrixLayout x;
  MatrixLayout y;
  Algorithm algorithm{};
};

MatrixMultiplier::MatrixMultiplier(DType dtype, cudaStream_t stream)
    : dtype_(dtype), stream_(stream) {
  workspace_.reserve(kWorkspace, "matrix products");
  check(cublasLtCreate(&handle_), "start");
}

MatrixMultiplier::~MatrixMultiplier() {
  cublasLtDestroy(handle_);
}

void MatrixMultiplier::multiply(const MatrixProduct& product) {
  if (product.rows == 0) return;
  auto& call = find_or_make_call(product);
  const auto* bias = product.linear.bias;
  if (bias != nullptr) call.set_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  run_call(call, product);
}

MatrixMultiplier::GemmSignature MatrixMultiplier::gemm_signature(const MatrixProduct& p) {
  return {p.rows, p.linear.in, p.linear.out, y_stride(p), p.linear.bias != nullptr, p.accumulate};
}

MatrixMultiplier::Call& MatrixMultiplier::find_or_make_call(const MatrixProduct& product) {
  const auto key = gemm_signature(product);
  const auto found = calls_.find(key);
  if (found != calls_.end()) return *found->second;
  if (calls_.size() >= kMostShapes) calls_.clear();
  auto call = std::make_unique<Call>(dtype_, product);
  call->algorithm = choose_algorithm(product, *call);
  return *(calls_[key] = std::move(call));
}

MatrixMultiplier::Algorithm MatrixMultiplier::choose_algorithm(const MatrixProduct& product,
                                                               const Call& call) {
  if (product.rows >= kFewestMeasuredRows) {
    MatrixProduct rounded = product;
    rounded.rows = std::min(
        kMostMeasuredRows,
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(product.rows))));
    const auto key = gemm_signature(rounded);
    if (!fastest_.contains(key)) fastest_[key] = fastest_algorithm(rounded);
    if (is_supported(call, fastest_[key])) return fastest_[key];
  }
  return candidate_algorithms(call).front();
}

std::vector<MatrixMultiplier::Algorithm> MatrixMultiplier::candidate_algorithms(const Call& call) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "look for algorithms");
  const auto bytes = as_index(kWorkspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                       sizeof bytes);
  const std::uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                       &no_split, sizeof no_split);
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle_, call.description, call.weight.layout,
                                                     call.x.layout, call.y.layout, call.y.layout,
                                                     preference, kCandidates, found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "look for algorithms");
  if (count == 0) failure("cuBLASLt: no algorithm for a product");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i) algorithms.push_back(found[i].algo);
  return algorithms;
}

// Discards algorithms whose summation order differs from that of the first candidate. Timing noise
// may then change which algorithm wins, but never a bit of the result.
MatrixMultiplier::Algorithm MatrixMultiplier::fastest_algorithm(const MatrixProduct& product) {
  MatrixProduct trial = product;  // writes to scratch: y may be an accumulation target
  trial.accumulate = false;
  trial.y_stride = 0;
  const auto row_bytes = product.linear.out * element_bytes(dtype_);
  const auto compared = std::min(product.rows, kComparedRows) * row_bytes;
  DeviceMemory scratch;
  DeviceMemory expected;
  trial.y = scratch.reserve(product.rows * row_bytes, "trial products");
  expected.reserve(compared, "trial products");
  Call call(dtype_, trial);
  const auto choices = candidate_algorithms(call);
  auto best = choices.front();
  double shortest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    call.algorithm = choices[i];
    run_call(call, trial);
    const double seconds = measure_shortest_seconds(call, trial);
    if (i == 0)
      cuda::check(cudaMemcpyAsync(expected.data(), trial.y, as_index(compared),
                                  cudaMemcpyDeviceToDevice, stream_),
                  "keep a trial product");
    else if (!are_bytes_equal(expected.data(), trial.y, compared, stream_))
      continue;
    if (seconds >= shortest) continue;
    shortest = seconds;
    best = choices[i];
  }
  return best;
}

bool MatrixMultiplier::is_supported(const Call& call, const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, call.description, call.weight.layout, call.x.layout,
                                 call.y.layout, call.y.layout, &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= as_index(kWorkspace);
}

void MatrixMultiplier::run_call(const Call& call, const MatrixProduct& product) {
  const float beta = product.accumulate ? 1.0f : 0.0f;
  check(cublasLtMatmul(handle_, call.description, &product.factor, product.linear.weight,
                       call.weight.layout, product.x, call.x.layout, &beta, product.y,
                       call.y.layout, product.y, call.y.layout, &call.algorithm, workspace_.data(),
                       as_index(kWorkspace), stream_),
        "multiply matrices");
}

double MatrixMultiplier::measure_shortest_seconds(const Call& call, const MatrixProduct& product) {
  Event begin(cudaEventDefault);
  Event end(cudaEventDefault);
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    begin.record(stream_);
    run_call(call, product);
    end.record(stream_);
    end.wait();
    shortest = std::min(shortest, end.seconds_since(begin));
  }
  return shortest;
}

double MatrixMultiplier::measure_flop_rate(double seconds) {
  const auto element = element_bytes(dtype_);
  const auto n = matrix_size_that_fits(element);
  const auto bytes = as_index(n * n * element);
  const auto values = random_values(dtype_, bytes);
  DeviceMemory x;
  DeviceMemory weight;
  DeviceMemory y;
  for (auto* side : {&x, &weight})
    cuda::check(cudaMemcpy(side->reserve(n * n * element, "products to measure"), values.data(),
                           bytes, cudaMemcpyHostToDevice),
                "copy values");
  y.reserve(n * n * element, "products to measure");
  const MatrixProduct product{.x = x.data(),
                              .linear = {.weight = weight.data(), .out = n, .in = n},
                              .y = y.data(),
                              .rows = n};
  multiply(product);  // triggers the algorithm search
  cuda::check(cudaStreamSynchronize(stream_), "multiply matrices");
  const auto start = Clock::now();
  std::int64_t count = 0;
  while (seconds_since(start) < seconds) {
    for (int i = 0; i < kProductsPerReading; ++i, ++count) multiply(product);
    cuda::check(cudaStreamSynchronize(stream_), "multiply matrices");
  }
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size * static_cast<double>(count) / seconds_since(start);
}

bool has_gated_product(const ModelConfig& model, DType dtype, int device) {
  return is_gated_kernel_built() && is_hopper(device) && dtype_size(dtype) == 2 &&
         model.gated_mlp() && model.activation == Activation::silu && !model.mlp_bias &&
         model.experts.count == 0 && model.d_mlp % 32 == 0 && model.d_model % 8 == 0;
}

bool has_grouped_products(const ModelConfig& model, DType dtype, int device) {
  return is_gated_kernel_built() && is_hopper(device) && dtype_size(dtype) == 2 &&
         model.experts.count > 0 && model.experts.count <= kMostGroups &&
         model.experts.d_mlp % (model.gated_mlp() ? 32 : 64) == 0 && model.d_model % 64 == 0;
}

void multiply_gated(GatedProductArguments arguments, cudaStream_t stream) {
  if (arguments.rows == 0) return;
  arguments.multiprocessors = multiprocessor_count(arguments.device);
  cuda::check(launch_gated_kernel(arguments, stream), "multiply by the MLP's weights");
}

}  // namespace qkscope::cuda
