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

void check_cublas(cublasStatus_t status, const char* operation) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw_failure("cuBLASLt: {} failed: {} ({})", operation, cublasLtGetStatusString(status),
                  static_cast<int>(status));
}

cudaDataType_t cuda_data_type(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// Random values with |x| in [0.5, 1): equal values would draw less power and run faster.
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
std::int64_t max_matrix_size(std::int64_t element) {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for free memory");
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
    check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
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
struct MatrixMultiplier::Plan {
  Plan(DType dtype, const MatrixProduct& p)
      : weight(cuda_data_type(dtype), p.linear.in, p.linear.out, p.linear.in),
        x(cuda_data_type(dtype), p.linear.in, p.rows, p.linear.in),
        y(cuda_data_type(dtype), p.linear.out, p.rows, y_stride(p)) {
    check_cublas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "describe a product");
    const auto transposed = CUBLAS_OP_T;
    set_attribute(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (p.linear.bias == nullptr) return;
    const auto epilogue = CUBLASLT_EPILOGUE_BIAS;
    set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.linear.bias, sizeof p.linear.bias);
  }
  ~Plan() { cublasLtMatmulDescDestroy(description); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void set_attribute(cublasLtMatmulDescAttributes_t attribute, const void* value,
                     std::size_t bytes) {
    check_cublas(cublasLtMatmulDescSetAttribute(description, attribute, value, bytes),
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
  check_cublas(cublasLtCreate(&handle_), "start");
}

MatrixMultiplier::~MatrixMultiplier() {
  cublasLtDestroy(handle_);
}

void MatrixMultiplier::multiply(const MatrixProduct& product) {
  if (product.rows == 0) return;
  auto& plan = find_or_make_plan(product);
  const auto* bias = product.linear.bias;
  if (bias != nullptr) plan.set_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  run_plan(plan, product);
}

MatrixMultiplier::GemmSignature MatrixMultiplier::gemm_signature(const MatrixProduct& p) {
  return {p.rows, p.linear.in, p.linear.out, y_stride(p), p.linear.bias != nullptr, p.accumulate};
}

MatrixMultiplier::Plan& MatrixMultiplier::find_or_make_plan(const MatrixProduct& product) {
  const auto key = gemm_signature(product);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return *found->second;
  if (plans_.size() >= kMostShapes) plans_.clear();
  auto plan = std::make_unique<Plan>(dtype_, product);
  plan->algorithm = choose_algorithm(product, *plan);
  return *(plans_[key] = std::move(plan));
}

MatrixMultiplier::Algorithm MatrixMultiplier::choose_algorithm(const MatrixProduct& product,
                                                               const Plan& plan) {
  if (product.rows >= kFewestMeasuredRows) {
    MatrixProduct rounded = product;
    rounded.rows = std::min(
        kMostMeasuredRows,
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(product.rows))));
    const auto key = gemm_signature(rounded);
    if (!fastest_.contains(key)) fastest_[key] = find_fastest_algorithm(rounded);
    if (is_supported(plan, fastest_[key])) return fastest_[key];
  }
  return candidate_algorithms(plan).front();
}

std::vector<MatrixMultiplier::Algorithm> MatrixMultiplier::candidate_algorithms(const Plan& plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference), "look for algorithms");
  const auto bytes = as_index(kWorkspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                       sizeof bytes);
  const std::uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                       &no_split, sizeof no_split);
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.description, plan.weight.layout,
                                                     plan.x.layout, plan.y.layout, plan.y.layout,
                                                     preference, kCandidates, found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check_cublas(status, "look for algorithms");
  if (count == 0) throw_failure("cuBLASLt: no algorithm for a product");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i) algorithms.push_back(found[i].algo);
  return algorithms;
}

// Discards algorithms whose summation order differs from that of the first candidate. Timing noise
// may then change which algorithm wins, but never a bit of the result.
MatrixMultiplier::Algorithm MatrixMultiplier::find_fastest_algorithm(const MatrixProduct& product) {
  MatrixProduct trial = product;  // writes to scratch: y may be an accumulation target
  trial.accumulate = false;
  trial.y_stride = 0;
  const auto row_bytes = product.linear.out * element_bytes(dtype_);
  const auto compared = std::min(product.rows, kComparedRows) * row_bytes;
  DeviceMemory scratch, expected;
  trial.y = scratch.reserve(product.rows * row_bytes, "trial products");
  expected.reserve(compared, "trial products");
  Plan plan(dtype_, trial);
  const auto choices = candidate_algorithms(plan);
  auto best = choices.front();
  double shortest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    plan.algorithm = choices[i];
    run_plan(plan, trial);
    const double seconds = measure_min_run_seconds(plan, trial);
    if (i == 0)
      check(cudaMemcpyAsync(expected.data(), trial.y, as_index(compared), cudaMemcpyDeviceToDevice,
                            stream_),
            "keep a trial product");
    else if (!are_bytes_equal(expected.data(), trial.y, compared, stream_))
      continue;
    if (seconds >= shortest) continue;
    shortest = seconds;
    best = choices[i];
  }
  return best;
}

bool MatrixMultiplier::is_supported(const Plan& plan, const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, plan.description, plan.weight.layout, plan.x.layout,
                                 plan.y.layout, plan.y.layout, &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= as_index(kWorkspace);
}

void MatrixMultiplier::run_plan(const Plan& plan, const MatrixProduct& product) {
  const float beta = product.accumulate ? 1.0f : 0.0f;
  check_cublas(cublasLtMatmul(handle_, plan.description, &product.factor, product.linear.weight,
                              plan.weight.layout, product.x, plan.x.layout, &beta, product.y,
                              plan.y.layout, product.y, plan.y.layout, &plan.algorithm,
                              workspace_.data(), as_index(kWorkspace), stream_),
               "multiply matrices");
}

double MatrixMultiplier::measure_min_run_seconds(const Plan& plan, const MatrixProduct& product) {
  GpuEvent begin(cudaEventDefault), end(cudaEventDefault);
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    begin.record(stream_);
    run_plan(plan, product);
    end.record(stream_);
    end.wait();
    shortest = std::min(shortest, end.seconds_since(begin));
  }
  return shortest;
}

double MatrixMultiplier::measure_flop_rate(double seconds) {
  const auto element = element_bytes(dtype_);
  const auto n = max_matrix_size(element);
  const auto bytes = as_index(n * n * element);
  const auto values = random_values(dtype_, bytes);
  DeviceMemory x, weight, y;
  for (auto* side : {&x, &weight})
    check(cudaMemcpy(side->reserve(n * n * element, "products to measure"), values.data(), bytes,
                     cudaMemcpyHostToDevice),
          "copy values");
  y.reserve(n * n * element, "products to measure");
  const MatrixProduct product{.x = x.data(),
                              .linear = {.weight = weight.data(), .out = n, .in = n},
                              .y = y.data(),
                              .rows = n};
  multiply(product);  // triggers the algorithm search
  check(cudaStreamSynchronize(stream_), "multiply matrices");
  const auto start = Clock::now();
  std::int64_t count = 0;
  while (seconds_since(start) < seconds) {
    for (int i = 0; i < kProductsPerReading; ++i, ++count) multiply(product);
    check(cudaStreamSynchronize(stream_), "multiply matrices");
  }
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size * static_cast<double>(count) / seconds_since(start);
}

bool supports_gated_gemm(const ModelConfig& model, DType dtype, int device) {
  return is_gated_gemm_built() && is_hopper(device) && dtype_size(dtype) == 2 &&
         model.gated_mlp() && model.activation == Activation::silu && !model.mlp_bias &&
         model.experts.count == 0 && model.d_mlp % 32 == 0 && model.d_model % 8 == 0;
}

bool supports_grouped_gemm(const ModelConfig& model, DType dtype, int device) {
  return is_gated_gemm_built() && is_hopper(device) && dtype_size(dtype) == 2 &&
         model.experts.count > 0 && model.experts.count <= kMostGroups &&
         model.experts.d_mlp % (model.gated_mlp() ? 32 : 64) == 0 && model.d_model % 64 == 0;
}

void run_gated_gemm(GatedGemmArguments arguments, cudaStream_t stream) {
  if (arguments.rows == 0) return;
  arguments.multiprocessors = multiprocessor_count(arguments.device);
  check(launch_gated_gemm(arguments, stream), "multiply by the MLP's weights");
}

}  // namespace qkscope::cuda
