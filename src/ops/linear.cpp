#include "ops/linear.h"

#include <algorithm>
#include <cstring>

#include <cblas.h>

#include "core/convert.h"
#include "core/thread_pool.h"
#include "ops/blas.h"

namespace qkscope {
namespace {

// Rows go to BLAS in tiles whose height is a multiple of kRowUnit, the last one filled up with
// zeros: so every row takes the same path through the kernels, whatever stands beside it.
constexpr std::int64_t kRowTile = 256;
constexpr std::int64_t kRowUnit = 16;
constexpr std::int64_t kColumnTile = 512;
// Rows that share one widened tile of weights.
constexpr std::int64_t kRowsPerTask = 1024;

struct Task {
  ConstTensorView x;     // (rows, in)
  const Matrix* weight;  // (out, in)
  const float* bias;     // (out) or null
  TensorView y;          // (rows, out)
  std::int64_t first_column;
  std::int64_t columns;
};

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Columns [first, first + count) of the product: rows of W as float32, from the file or widened.
const float* weight_rows(const Matrix& weight, std::int64_t first, std::int64_t count) {
  const auto rows = weight.values.rows(first, first + count);
  if (rows.dtype() == DType::f32 && weight.scale == 1.0f) return rows.data<float>();
  thread_local std::vector<float> widened;
  widened.resize(static_cast<std::size_t>(rows.size()));
  widen(rows, widened);
  if (weight.scale != 1.0f)
    for (float& value : widened) value *= weight.scale;
  return widened.data();
}

void multiply(const float* x, const float* w, float* y, std::int64_t rows, const Task& task,
              std::int64_t y_stride) {
  const auto in = task.x.dim(1);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(rows),
              static_cast<int>(task.columns), static_cast<int>(in), 1.0f, x, static_cast<int>(in),
              w, static_cast<int>(in), 0.0f, y, static_cast<int>(y_stride));
}

// A tile that is not a multiple of kRowUnit high goes through buffers filled up with zeros.
void multiply_padded(const float* x, const float* w, float* y, std::int64_t rows,
                     const Task& task) {
  const auto in = task.x.dim(1);
  const auto padded = round_up(rows, kRowUnit);
  thread_local std::vector<float> x_tile;
  thread_local std::vector<float> y_tile;
  x_tile.assign(static_cast<std::size_t>(padded * in), 0.0f);
  y_tile.resize(static_cast<std::size_t>(padded * task.columns));
  std::memcpy(x_tile.data(), x, static_cast<std::size_t>(rows * in) * sizeof(float));
  multiply(x_tile.data(), w, y_tile.data(), padded, task, task.columns);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(y + row * task.y.stride(0), y_tile.data() + row * task.columns,
                static_cast<std::size_t>(task.columns) * sizeof(float));
}

void add_bias(const float* bias, float* y, std::int64_t rows, const Task& task) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < task.columns; ++column)
      y[row * task.y.stride(0) + column] += bias[task.first_column + column];
}

void run(const Task& task, std::int64_t first_row, std::int64_t end_row) {
  const float* w = weight_rows(*task.weight, task.first_column, task.columns);
  for (std::int64_t row = first_row; row < end_row; row += kRowTile) {
    const auto rows = std::min(kRowTile, end_row - row);
    const float* x = task.x.data<float>() + row * task.x.dim(1);
    float* y = task.y.data<float>() + row * task.y.stride(0) + task.first_column;
    if (rows % kRowUnit == 0)
      multiply(x, w, y, rows, task, task.y.stride(0));
    else
      multiply_padded(x, w, y, rows, task);
    if (task.bias != nullptr) add_bias(task.bias, y, rows, task);
  }
}

void linear(ConstTensorView x, const Matrix& weight, const float* bias, TensorView y) {
  const auto rows = x.dim(0);
  const auto out = weight.values.dim(0);
  QKSCOPE_ASSERT(x.is_contiguous() && x.dim(1) == weight.values.dim(1));
  QKSCOPE_ASSERT(y.dim(0) == rows && y.dim(1) == out && y.stride(1) == 1);
  use_one_blas_thread();
  // Tiles of equal width: they depend on the weight alone.
  const auto column_tiles = (out + kColumnTile - 1) / kColumnTile;
  const auto width = round_up((out + column_tiles - 1) / column_tiles, kRowUnit);
  const auto columns = (out + width - 1) / width;
  const bool stored_as_float = weight.values.dtype() == DType::f32 && weight.scale == 1.0f;
  const auto rows_per_task = stored_as_float ? kRowTile : kRowsPerTask;
  const auto row_tasks = (rows + rows_per_task - 1) / rows_per_task;
  parallel_for(columns * row_tasks, [&](std::int64_t index) {
    const auto first_column = index / row_tasks * width;
    const auto first_row = index % row_tasks * rows_per_task;
    const Task task{x, &weight, bias, y, first_column, std::min(width, out - first_column)};
    run(task, first_row, std::min(rows, first_row + rows_per_task));
  });
}

}  // namespace

void linear(ConstTensorView x, const Linear& layer, TensorView y) {
  linear(x, layer.weight, layer.bias.empty() ? nullptr : layer.bias.data(), y);
}

void linear(ConstTensorView x, const Matrix& weight, TensorView y) {
  linear(x, weight, nullptr, y);
}

}  // namespace qkscope
