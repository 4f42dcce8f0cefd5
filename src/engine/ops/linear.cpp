#include "engine/ops/linear.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"
#include "engine/ops/gemv.h"
#include "engine/ops/row_kernels.h"
#include "engine/ops/weight_rows.h"
#include "engine/ops/workspace.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBlockColumns = 96;  // a multiple of every target's tile
constexpr std::int64_t kMostTaskRows = 3072;
constexpr std::int64_t kLeastTaskRows = 48;

struct Product {
  const WeightMatrix& weight;
  const float* bias;  // (out) or null
  TensorView y;       // (rows, out)
};

// Columns of one product: what a thread computes for some rows at a time.
struct Block {
  const Product* product;
  std::int64_t first;
  std::int64_t columns;
};

std::vector<Block> blocks_of(std::span<const Product> products) {
  std::vector<Block> blocks;
  for (const auto& product : products) {
    const auto out = product.weight.out();
    for (std::int64_t first = 0; first < out; first += kBlockColumns)
      blocks.push_back({&product, first, std::min(kBlockColumns, out - first)});
  }
  return blocks;
}

// Rows per task: as few parts as leave every thread the same number of tasks, and a few of them.
// Bits do not depend on it.
std::int64_t rows_per_task(std::int64_t rows, std::int64_t blocks) {
  const std::int64_t threads = thread_count();
  const auto most_parts = std::max<std::int64_t>(1, rows / kLeastTaskRows);
  auto parts = (rows + kMostTaskRows - 1) / kMostTaskRows;
  while (parts < most_parts && parts * blocks < 4 * threads) ++parts;
  const auto enough = parts;
  while (parts < most_parts && parts < enough + threads && parts * blocks % threads != 0) ++parts;
  return gemm::round_up((rows + parts - 1) / parts, gemm::tile_shape().rows);
}

// x in packed blocks: for each stretch of the depth, all rows.
class PackedInput {
 public:
  explicit PackedInput(ConstTensorView x)
      : x_(x), padded_rows_(gemm::round_up(x.dim(0), gemm::tile_shape().rows)) {
    thread_local Workspace memory;
    packed_ = memory.floats(padded_rows_ * depth());
  }

  std::int64_t rows() const { return x_.dim(0); }
  std::int64_t depth() const { return x_.dim(1); }

  // Packing is done in so many tasks.
  std::int64_t tasks() const { return (rows() + kTaskRows - 1) / kTaskRows; }
  void pack(std::int64_t task) {
    const auto first = task * kTaskRows;
    const auto count = std::min(kTaskRows, rows() - first);
    for (std::int64_t k = 0; k < depth(); k += gemm::stretch(depth())) {
      const auto part = std::min(gemm::stretch(depth()), depth() - k);
      gemm::pack(gemm::LeftRows{x_.data<float>() + first * depth() + k, depth(), count, part},
                 packed_ + padded_rows_ * k + first * part);
    }
  }

  // Rows from `first` (a multiple of the tile's rows) on, over the stretch of `depth` that begins
  // at k.
  const float* block(std::int64_t first, std::int64_t k, std::int64_t depth) const {
    return packed_ + padded_rows_ * k + first * depth;
  }

 private:
  static constexpr std::int64_t kTaskRows = 48;  // a multiple of every target's tile

  ConstTensorView x_;
  std::int64_t padded_rows_;
  float* packed_ = nullptr;
};

// Rows of W as float32: from the file as they are, or widened.
gemm::RightColumns weight_columns(const WeightMatrix& weight, std::int64_t first,
                                  std::int64_t columns, std::int64_t k, std::int64_t depth) {
  if (weight.values.dtype() == DType::f32 && weight.scale == 1.0f && weight.values.is_contiguous())
    return {weight.values.data<float>() + weight.row_offset(first) + k, weight.in(), columns,
            depth};
  thread_local Workspace memory;
  float* widened = memory.floats(columns * depth);
  widen_rows(weight, {first, columns, k, depth}, widened);
  return {widened, depth, columns, depth};
}

// Floats of a packed block: for each stretch of the depth, all columns.
std::int64_t packed_floats(std::int64_t depth) {
  return gemm::round_up(kBlockColumns, gemm::tile_shape().columns) * depth;
}

// Panel by panel, so that what was widened is still in the first-level cache when it is packed.
void pack_weights(const Block& block, std::int64_t depth, float* packed) {
  const auto panel = gemm::tile_shape().columns;
  for (std::int64_t k = 0; k < depth; k += gemm::stretch(depth)) {
    const auto part = std::min(gemm::stretch(depth), depth - k);
    for (std::int64_t column = 0; column < block.columns; column += panel, packed += panel * part)
      gemm::pack(weight_columns(block.product->weight, block.first + column,
                                std::min(panel, block.columns - column), k, part),
                 packed);
  }
}

void multiply(const PackedInput& x, const Block& block, const float* packed, std::int64_t first_row,
              std::int64_t rows) {
  const auto& y = block.product->y;
  const auto padded = gemm::round_up(block.columns, gemm::tile_shape().columns);
  float* out = y.data<float>() + first_row * y.stride(0) + block.first;
  for (std::int64_t k = 0; k < x.depth(); k += gemm::stretch(x.depth())) {
    const auto depth = std::min(gemm::stretch(x.depth()), x.depth() - k);
    gemm::multiply({x.block(first_row, k, depth), packed + padded * k, rows, block.columns, depth},
                   k > 0, out, y.stride(0));
  }
  if (block.product->bias == nullptr) return;
  for (std::int64_t row = 0; row < rows; ++row)
    rows::add(out + row * y.stride(0), block.product->bias + block.first, block.columns);
}

// Few blocks are packed once for all threads, which then share the rows among them.
void multiply_shared(PackedInput& x, std::span<const Block> blocks) {
  thread_local Workspace memory;
  const auto block_floats = packed_floats(x.depth());
  const auto count = static_cast<std::int64_t>(blocks.size());
  float* packed = memory.floats(count * block_floats);
  const auto block_at = [&](std::int64_t i) -> const Block& {
    return blocks[static_cast<std::size_t>(i)];
  };
  parallel_for(count + x.tasks(), [&](std::int64_t i) {
    if (i < count)
      pack_weights(block_at(i), x.depth(), packed + i * block_floats);
    else
      x.pack(i - count);
  });
  const auto task_rows = rows_per_task(x.rows(), count);
  const auto row_tasks = (x.rows() + task_rows - 1) / task_rows;
  parallel_for(row_tasks * count, [&](std::int64_t i) {
    const auto first = i % row_tasks * task_rows;
    multiply(x, block_at(i / row_tasks), packed + i / row_tasks * block_floats, first,
             std::min(task_rows, x.rows() - first));
  });
}

// Many blocks, or very large ones: each task packs its own, and as few rows as leave every thread
// enough tasks repeat that.
void multiply_apart(PackedInput& x, std::span<const Block> blocks) {
  parallel_for(x.tasks(), [&](std::int64_t i) { x.pack(i); });
  const auto count = static_cast<std::int64_t>(blocks.size());
  const auto task_rows = rows_per_task(x.rows(), count);
  const auto row_tasks = (x.rows() + task_rows - 1) / task_rows;
  parallel_for(row_tasks * count, [&](std::int64_t i) {
    thread_local Workspace memory;
    float* packed = memory.floats(packed_floats(x.depth()));
    const auto& block = blocks[static_cast<std::size_t>(i / row_tasks)];
    const auto first = i % row_tasks * task_rows;
    pack_weights(block, x.depth(), packed);
    multiply(x, block, packed, first, std::min(task_rows, x.rows() - first));
  });
}

// A few rows: each thread takes some outputs, and the weights come as they are stored.
void multiply_few(ConstTensorView x, std::span<const Product> products) {
  std::int64_t outputs = 0;
  for (const auto& product : products) outputs += product.weight.out();
  const auto per_task =
      gemm::round_up(outputs / (4 * std::int64_t{thread_count()}) + 1, gemv::kGroup);
  std::vector<Block> blocks;
  for (const auto& product : products)
    for (std::int64_t first = 0; first < product.weight.out(); first += per_task)
      blocks.push_back({&product, first, std::min(per_task, product.weight.out() - first)});
  parallel_for(std::ssize(blocks), [&](std::int64_t i) {
    const auto& [product, first, columns] = blocks[static_cast<std::size_t>(i)];
    const auto& y = product->y;
    gemv::multiply({x.data<float>(), x.dim(0), product->weight, y.data<float>(), y.stride(0)},
                   first, columns);
    for (std::int64_t row = 0; product->bias != nullptr && row < x.dim(0); ++row)
      rows::add(y.data<float>() + row * y.stride(0) + first, product->bias + first, columns);
  });
}

void multiply(ConstTensorView x, std::span<const Product> products) {
  for (const auto& [weight, bias, y] : products) {
    QKSCOPE_ASSERT(x.is_contiguous() && x.dim(1) == weight.in());
    QKSCOPE_ASSERT(y.dim(0) == x.dim(0) && y.dim(1) == weight.out() && y.stride(1) == 1);
  }
  if (x.dim(0) <= gemv::kMostRows) return multiply_few(x, products);
  const auto blocks = blocks_of(products);
  const auto count = static_cast<std::int64_t>(blocks.size());
  PackedInput packed(x);
  const bool few = count < 8 * std::int64_t{thread_count()};
  if (few && count * packed_floats(x.dim(1)) <= kMostSharedWeights)
    multiply_shared(packed, blocks);
  else
    multiply_apart(packed, blocks);
}

Product product_of(const Linear& layer, TensorView y) {
  return {layer.weight, layer.bias.empty() ? nullptr : layer.bias.data(), y};
}

}  // namespace

void linear(ConstTensorView x, const Linear& layer, TensorView y) {
  linear(x, {{layer, y}});
}

void linear(ConstTensorView x, const WeightMatrix& weight, TensorView y) {
  const Product product{weight, nullptr, y};
  multiply(x, {&product, 1});
}

void linear(ConstTensorView x, std::initializer_list<Projection> projections) {
  std::vector<Product> products;
  for (const auto& [layer, y] : projections) products.push_back(product_of(layer, y));
  multiply(x, products);
}

}  // namespace qkscope
