// Kernels on whole rows: token embedding, gather and scatter, conversion of weights, comparison.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"

namespace qkscope::cuda {

// y (count, n) = table[ids] * scale; the scale is first rounded to the element type.
struct EmbedArguments {
  const void* table = nullptr;        // (vocabulary, n)
  const std::int32_t* ids = nullptr;  // (count)
  void* y = nullptr;                  // (count, n)
  std::int64_t count = 0;
  std::int64_t n = 0;
  float scale = 1.0f;
  DType dtype = DType::bf16;
};
void embed(const EmbedArguments& arguments, cudaStream_t stream);

// Gathers the selected rows and heads of an activation as dense float32.
struct GatherArguments {
  const void* x = nullptr;              // (rows, heads, width)
  std::int64_t row_stride = 0;          // elements
  const std::int32_t* rows = nullptr;   // (row_count) or null: the first row_count rows
  const std::int32_t* heads = nullptr;  // (head_count) or null: the first head_count heads
  float* y = nullptr;                   // (row_count, head_count, width)
  std::int64_t row_count = 0;
  std::int64_t head_count = 0;
  std::int64_t width = 0;
  DType dtype = DType::bf16;
};
void gather(const GatherArguments& arguments, cudaStream_t stream);

// Inverse of gather() for whole rows: rounds dense float32 x (rows, n) into the strided matrix
// y (rows, n).
void scatter_floats(const float* x, void* y, std::int64_t rows, std::int64_t n,
                    std::int64_t row_stride, DType dtype, cudaStream_t stream);

// y[y_rows] = x[x_rows] for `count` rows of n elements. A null list stands for rows 0 to count - 1.
struct CopyRowsArguments {
  const void* x = nullptr;
  std::int64_t x_stride = 0;             // elements
  const std::int32_t* x_rows = nullptr;  // (count) or null
  void* y = nullptr;
  std::int64_t y_stride = 0;             // elements
  const std::int32_t* y_rows = nullptr;  // (count) or null
  std::int64_t count = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void copy_rows(const CopyRowsArguments& arguments, cudaStream_t stream);

// destination (count) of type `to` = scale * source (count) of type `from`, which is f32, f16, bf16
// or f8_e4m3.
void convert(const void* source, DType from, void* destination, DType to, std::int64_t count,
             float scale, cudaStream_t stream);

// destination (columns, stride) of type `to`, from column `begin` on, = scale * transpose of source
// (rows, columns) of type `from`.
struct TransposeArguments {
  const void* source = nullptr;
  DType from = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  void* destination = nullptr;
  DType to = DType::bf16;
  std::int64_t begin = 0;
  std::int64_t stride = 0;
  float scale = 1.0f;
};
void convert_transposed(const TransposeArguments& arguments, cudaStream_t stream);

// Compares two device buffers and waits for the result. Only whole 4-byte words are compared.
bool same_bytes(const void* a, const void* b, std::int64_t bytes, cudaStream_t stream);

// Returns whether this build contains code for the current GPU, by looking up one kernel.
bool has_code_for_gpu();

}  // namespace qkscope::cuda
