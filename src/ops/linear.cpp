#include "ops/linear.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/gemm.h"
#include "ops/row_kernels.h"
#include "ops/weight_rows.h"

namespace qkscope {
namespace {

constexpr std::int64_t kTaskColumns = 128;
constexpr std::int64_t kMostTaskRows = 3072;
constexpr std::int64_t kLeastTaskRows = 96;

// Rows per task: packed weights serve all rows of a task, so as few parts as leave every thread the
// same number of tasks, and a few of them. Bits do not depend on it.
std::int64_t rows_per_task(std::int64_t rows, std::int64_t column_tasks) {
  const std::int64_t threads = thread_count();
  const auto most_parts = std::max<std::int64_t>(1, rows / kLeastTaskRows);
  auto parts = (rows + kMostTaskRows - 1) / kMostTaskRows;
  while (parts < most_parts && parts * column_tasks < 4 * threads) ++parts;
  const auto enough = parts;
  while (parts < most_parts && parts < enough + threads && parts * column_tasks % threads != 0)
    ++parts;
  return gemm::round_up((rows + parts - 1) / parts, gemm::tile_shape().rows);
}

// x in packed blocks: for each stretch of the depth, all rows.
class PackedInput {
 public:
  explicit PackedInput(ConstTensorView x)
      : rows_(x.dim(0)),
        depth_(x.dim(1)),
        padded_rows_(gemm::round_up(rows_, gemm::tile_shape().rows)) {
    buffer().resize(static_cast<std::size_t>(padded_rows_ * depth_));
    float* packed = buffer().data();
    const auto task_rows = 16 * gemm::tile_shape().rows;
    parallel_for((rows_ + task_rows - 1) / task_rows, [&](std::int64_t task) {
      const auto first = task * task_rows;
      const auto rows = std::min(task_rows, rows_ - first);
      for (std::int64_t k = 0; k < depth_; k += gemm::stretch(depth_)) {
        const auto depth = std::min(gemm::stretch(depth_), depth_ - k);
        gemm::pack({x.data<float>() + first * depth_ + k, depth_, rows, depth}, 1.0f,
                   packed + padded_rows_ * k + first * depth);
      }
    });
    packed_ = packed;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t depth() const { return depth_; }
  // Rows from `first` (a multiple of the tile's rows) on, over the stretch of `depth` that begins
  // at k.
  const float* block(std::int64_t first, std::int64_t k, std::int64_t depth) const {
    return packed_ + padded_rows_ * k + first * depth;
  }

 private:
  // Kept between calls: a forward pass packs inputs of the same few sizes again and again.
  static std::vector<float>& buffer() {
    thread_local std::vector<float> memory;
    return memory;
  }

  std::int64_t rows_;
  std::int64_t depth_;
  std::int64_t padded_rows_;
  const float* packed_ = nullptr;
};

// Rows of W as float32: from the file as they are, or widened.
gemm::RightColumns weight_block(const WeightMatrix& weight, std::int64_t first,
                                std::int64_t columns, std::int64_t k, std::int64_t depth) {
  if (weight.values.dtype() == DType::f32 && weight.scale == 1.0f && weight.values.is_contiguous())
    return {weight.values.data<float>() + weight.row_offset(first) + k, weight.in(), columns,
            depth};
  thread_local std::vector<float> widened;
  widened.resize(static_cast<std::size_t>(columns * depth));
  widen_rows(weight, {first, columns, k, depth}, widened.data());
  return {widened.data(), depth, columns, depth};
}

struct Task {
  std::int64_t first_row, rows, first_column, columns;
};

void run(const PackedInput& x, const WeightMatrix& weight, const float* bias, TensorView y,
         const Task& task) {
  thread_local std::vector<float> packed;
  packed.resize(static_cast<std::size_t>(gemm::round_up(task.columns, gemm::tile_shape().columns) *
                                         gemm::kMaxDepth));
  const auto stride = y.stride(0);
  float* out = y.data<float>() + task.first_row * stride + task.first_column;
  for (std::int64_t k = 0; k < x.depth(); k += gemm::stretch(x.depth())) {
    const auto depth = std::min(gemm::stretch(x.depth()), x.depth() - k);
    gemm::pack(weight_block(weight, task.first_column, task.columns, k, depth), packed.data());
    gemm::multiply(
        {x.block(task.first_row, k, depth), packed.data(), task.rows, task.columns, depth}, k > 0,
        out, stride);
  }
  if (bias == nullptr) return;
  for (std::int64_t row = 0; row < task.rows; ++row)
    rows::add(out + row * stride, bias + task.first_column, task.columns);
}

void linear(ConstTensorView x, const WeightMatrix& weight, const float* bias, TensorView y) {
  const auto rows = x.dim(0);
  const auto out = weight.out();
  QKSCOPE_ASSERT(x.is_contiguous() && x.dim(1) == weight.in());
  QKSCOPE_ASSERT(y.dim(0) == rows && y.dim(1) == out && y.stride(1) == 1);
  const PackedInput packed(x);
  const auto column_tasks = (out + kTaskColumns - 1) / kTaskColumns;
  const auto task_rows = rows_per_task(rows, column_tasks);
  const auto row_tasks = (rows + task_rows - 1) / task_rows;
  parallel_for(row_tasks * column_tasks, [&](std::int64_t index) {
    const auto first_row = index % row_tasks * task_rows;
    const auto first_column = index / row_tasks * kTaskColumns;
    run(packed, weight, bias, y,
        {first_row, std::min(task_rows, rows - first_row), first_column,
         std::min(kTaskColumns, out - first_column)});
  });
}

}  // namespace

void linear(ConstTensorView x, const Linear& layer, TensorView y) {
  linear(x, layer.weight, layer.bias.empty() ? nullptr : layer.bias.data(), y);
}

void linear(ConstTensorView x, const WeightMatrix& weight, TensorView y) {
  linear(x, weight, nullptr, y);
}

}  // namespace qkscope
