#include "engine/ops/linear.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

// Converts `count` contiguous weights of a matrix, starting at `offset`, to float32.
void contiguous_to_float32(const WeightMatrix& matrix, std::int64_t offset, std::int64_t count,
                           float* out) {
  const auto& values = matrix.values;
  const auto size = static_cast<std::int64_t>(dtype_size(values.dtype()));
  convert_to_float32({values.bytes() + offset * size, values.dtype(), {count}},
                     {out, static_cast<std::size_t>(count)});
}

// Converts part of a matrix stored as (in, out), where contiguous values belong to different rows.
void transposed_to_float32(const WeightMatrix& matrix, const WeightSubmatrix& part, float* out) {
  thread_local std::vector<float> column;
  const auto step = matrix.values.stride(0);
  const auto run = (part.rows - 1) * step + 1;
  column.resize(static_cast<std::size_t>(run));
  for (std::int64_t i = 0; i < part.depth; ++i) {
    const auto offset = (part.begin + i) * matrix.values.stride(1) + part.first * step;
    contiguous_to_float32(matrix, offset, run, column.data());
    for (std::int64_t row = 0; row < part.rows; ++row)
      out[row * part.depth + i] = column[static_cast<std::size_t>(row * step)];
  }
}

// E8M0 of OCP Microscaling Formats 1.0: 2^(bits - 127), NaN for 255.
float decode_e8m0(std::uint8_t bits) {
  constexpr std::uint8_t kNanBits = 255;
  return bits == kNanBits ? std::numeric_limits<float>::quiet_NaN()
                          : static_cast<float>(std::ldexp(1.0, bits - 127));
}

// MXFP4: a weight is an E2M1 value times the power of two of its block of 32; exact in float32.
void mxfp4_to_float32(const WeightMatrix& matrix, const WeightSubmatrix& part, float* out) {
  constexpr std::array kNumbers = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  constexpr std::int64_t kBlock = 32;
  const auto bytes_of = [](ConstTensorView values, std::int64_t row) {
    return reinterpret_cast<const std::uint8_t*>(values.bytes()) + row * values.stride(0);
  };
  for (std::int64_t row = part.first; row < part.first + part.rows; ++row) {
    const auto* numbers = bytes_of(matrix.values, row);
    const auto* scales = bytes_of(matrix.block_scales, row);
    for (auto i = part.begin; i < part.begin + part.depth;) {
      const auto end = std::min(part.begin + part.depth, (i / kBlock + 1) * kBlock);
      const float scale = decode_e8m0(scales[i / kBlock]);
      for (; i < end; ++i) *out++ = scale * kNumbers[(numbers[i / 2] >> (i % 2 * 4)) & 15];
    }
  }
}

constexpr std::int64_t kBlockColumns = 96;  // a multiple of the tile of every CPU target
constexpr std::int64_t kMostTaskRows = 3072;
constexpr std::int64_t kLeastTaskRows = 48;

// A range of output columns of one linear layer, the unit of work of a thread.
struct OutputColumnBlock {
  const LinearOutput* product;
  std::int64_t first;
  std::int64_t columns;
};

std::vector<OutputColumnBlock> split_into_column_blocks(
    std::initializer_list<LinearOutput> products, std::int64_t columns) {
  std::vector<OutputColumnBlock> blocks;
  for (const auto& product : products)
    for (std::int64_t first = 0; first < product.y.dim(1); first += columns)
      blocks.push_back({&product, first, std::min(columns, product.y.dim(1) - first)});
  return blocks;
}

// Returns the rows per task: as many as load balancing allows. Results do not depend on it.
std::int64_t rows_per_task(std::int64_t rows, std::int64_t blocks) {
  const std::int64_t threads = thread_count();
  const auto most_parts = std::max<std::int64_t>(1, rows / kLeastTaskRows);
  auto parts = (rows + kMostTaskRows - 1) / kMostTaskRows;
  while (parts < most_parts && parts * blocks < 4 * threads) ++parts;
  const auto enough = parts;
  while (parts < most_parts && parts < enough + threads && parts * blocks % threads != 0) ++parts;
  return gemm::round_up((rows + parts - 1) / parts, gemm::tile_shape().rows);
}

// Input packed for gemm.h: all rows of the first depth block, then all rows of the next one.
class PackedInput {
 public:
  explicit PackedInput(ConstTensorView x)
      : x_(x), padded_rows_(gemm::round_up(x.dim(0), gemm::tile_shape().rows)) {
    thread_local ScratchFloats memory;
    packed_ = memory.reserve(padded_rows_ * depth());
  }

  std::int64_t rows() const { return x_.dim(0); }
  std::int64_t depth() const { return x_.dim(1); }

  // Returns the number of packing tasks, which may run in parallel.
  std::int64_t task_count() const { return (rows() + kTaskRows - 1) / kTaskRows; }
  void pack_rows(std::int64_t task) {
    const auto first = task * kTaskRows;
    const auto count = std::min(kTaskRows, rows() - first);
    gemm::for_each_depth_block(depth(), [&](std::int64_t k, std::int64_t part) {
      gemm::pack_left_operand({x_.data<float>() + first * depth() + k, depth(), count, part},
                              packed_ + padded_rows_ * k + first * part);
    });
  }

  // Returns the packed rows from `first` (a multiple of the tile height), for the depth block at k.
  const float* block(std::int64_t first, std::int64_t k, std::int64_t depth) const {
    return packed_ + padded_rows_ * k + first * depth;
  }

 private:
  static constexpr std::int64_t kTaskRows = 48;  // a multiple of the tile of every CPU target

  ConstTensorView x_;
  std::int64_t padded_rows_;
  float* packed_ = nullptr;
};

// Returns rows of W as float32, without a copy if the file stores float32.
gemm::StridedVectors weight_rows(const WeightMatrix& weight, std::int64_t first,
                                 std::int64_t columns, std::int64_t k, std::int64_t depth) {
  if (weight.values.dtype() == DType::f32 && weight.scale == 1.0f && weight.values.is_contiguous())
    return {weight.values.data<float>() + weight.row_offset(first) + k, weight.in(), columns,
            depth};
  thread_local ScratchFloats memory;
  float* widened = memory.reserve(columns * depth);
  weights_to_float32(weight, {first, columns, k, depth}, widened);
  return {widened, depth, columns, depth};
}

std::int64_t packed_block_floats(std::int64_t depth) {
  return gemm::round_up(kBlockColumns, gemm::tile_shape().columns) * depth;
}

// Converts and packs weights panel by panel, so that converted weights stay in the L1 cache.
void pack_weights(const OutputColumnBlock& block, std::int64_t depth, float* packed) {
  const auto panel = gemm::tile_shape().columns;
  gemm::for_each_depth_block(depth, [&](std::int64_t k, std::int64_t part) {
    for (std::int64_t column = 0; column < block.columns; column += panel, packed += panel * part)
      gemm::pack_right_operand(weight_rows(block.product->layer.weight, block.first + column,
                                           std::min(panel, block.columns - column), k, part),
                               packed);
  });
}

void multiply_packed(const PackedInput& x, const OutputColumnBlock& block, const float* packed,
                     std::int64_t first_row, std::int64_t rows) {
  const auto& y = block.product->y;
  const auto padded = gemm::round_up(block.columns, gemm::tile_shape().columns);
  float* out = y.data<float>() + first_row * y.stride(0) + block.first;
  gemm::for_each_depth_block(x.depth(), [&](std::int64_t k, std::int64_t depth) {
    gemm::multiply({x.block(first_row, k, depth), packed + padded * k, rows, block.columns, depth},
                   k > 0, out, y.stride(0));
  });
  const auto& bias = block.product->layer.bias;
  for (std::int64_t row = 0; !bias.empty() && row < rows; ++row)
    rows::add_scaled(out + row * y.stride(0), bias.data() + block.first, block.columns, 1.0f);
}

// Multiplies x by all weight blocks. If `shared`, each block is packed once for all threads;
// otherwise each task packs its own copy, so a block is packed once per range of rows.
void multiply_blocks(PackedInput& x, std::span<const OutputColumnBlock> blocks, bool shared) {
  const auto block_floats = packed_block_floats(x.depth());
  const auto count = std::ssize(blocks);
  thread_local ScratchFloats shared_memory;
  float* packed = shared ? shared_memory.reserve(count * block_floats) : nullptr;
  const auto shared_blocks = shared ? count : 0;
  parallel_for(shared_blocks + x.task_count(), [&](std::int64_t i) {
    if (i < shared_blocks)
      pack_weights(blocks[as_index(i)], x.depth(), packed + i * block_floats);
    else
      x.pack_rows(i - shared_blocks);
  });
  const auto task_rows = rows_per_task(x.rows(), count);
  const auto row_tasks = (x.rows() + task_rows - 1) / task_rows;
  parallel_for(row_tasks * count, [&](std::int64_t i) {
    thread_local ScratchFloats own_memory;
    const auto& block = blocks[as_index(i / row_tasks)];
    const auto first = i % row_tasks * task_rows;
    float* weights =
        shared ? packed + i / row_tasks * block_floats : own_memory.reserve(block_floats);
    if (!shared) pack_weights(block, x.depth(), weights);
    multiply_packed(x, block, weights, first, std::min(task_rows, x.rows() - first));
  });
}

// Multiplies a few rows by weights in their stored layout; each task computes some outputs.
void multiply_few_rows(ConstTensorView x, std::initializer_list<LinearOutput> products) {
  std::int64_t outputs = 0;
  for (const auto& product : products) outputs += product.y.dim(1);
  const auto per_task =
      gemm::round_up(outputs / (4 * std::int64_t{thread_count()}) + 1, gemv::kGroup);
  const auto blocks = split_into_column_blocks(products, per_task);
  parallel_for(std::ssize(blocks), [&](std::int64_t i) {
    const auto& [product, first, columns] = blocks[as_index(i)];
    const auto& [layer, y] = *product;
    gemv::multiply({x.data<float>(), x.dim(0), layer.weight, y.data<float>(), y.stride(0)}, first,
                   columns);
    for (std::int64_t row = 0; !layer.bias.empty() && row < x.dim(0); ++row)
      rows::add_scaled(y.data<float>() + row * y.stride(0) + first, layer.bias.data() + first,
                       columns, 1.0f);
  });
}

TensorView scratch_matrix(ScratchFloats& memory, std::int64_t rows, std::int64_t width) {
  return {reinterpret_cast<std::byte*>(memory.reserve(rows * width)), DType::f32, {rows, width}};
}

// Calls body(i, slots[i]) for every i, in parallel.
template <typename Body>
void for_each_slot(std::span<const std::int64_t> slots, Body body) {
  constexpr std::int64_t kSlotsPerTask = 16;
  parallel_for_ranges(std::ssize(slots), kSlotsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) body(i, slots[as_index(i)]);
  });
}

// Calls body(expert, slots of that expert) in expert order, with at most kMostExpertRows slots.
template <typename Body>
void for_each_expert(const RowsByExpert& rows, Body body) {
  for (std::int64_t expert = 0; expert + 1 < std::ssize(rows.begin); ++expert) {
    const auto slots = rows.expert_slots(expert);
    for (std::size_t first = 0; first < slots.size(); first += kMostExpertRows)
      body(as_index(expert),
           slots.subspan(first, std::min<std::size_t>(kMostExpertRows, slots.size() - first)));
  }
}

// Maps a NaN router logit to infinity, so that the expert is selected and its NaN propagates.
float replace_nan_by_infinity(float logit) {
  return std::isnan(logit) ? std::numeric_limits<float>::infinity() : logit;
}

// Sets the selection scores of experts outside the best groups to -infinity. Groups are ranked by
// the sum of their two highest scores, or by the highest one; ties go to the lower group.
void exclude_low_scored_groups(std::vector<float>& selection, const ExpertsConfig& config) {
  const auto size = std::ssize(selection) / config.groups;
  std::vector<float> group_scores;
  for (auto first = selection.begin(); first != selection.end(); first += size) {
    std::array<float, 2> best{};
    std::partial_sort_copy(first, first + size, best.begin(), best.end(), std::greater<>());
    group_scores.push_back(config.group_maximum ? best[0] : best[0] + best[1]);
  }
  for (std::int64_t g = 0; g < config.groups; ++g) {
    const auto better = [&, at = as_index(g)](std::size_t other) {
      return group_scores[other] > group_scores[at] ||
             (group_scores[other] == group_scores[at] && other < at);
    };
    std::int64_t above = 0;
    for (std::size_t other = 0; other < group_scores.size(); ++other) above += better(other);
    if (above >= config.chosen_groups)
      std::fill_n(selection.begin() + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

void weights_to_float32(const WeightMatrix& matrix, const WeightSubmatrix& part, float* out) {
  if (matrix.is_mxfp4()) return mxfp4_to_float32(matrix, part, out);
  if (matrix.transposed()) {
    transposed_to_float32(matrix, part, out);
  } else {
    for (std::int64_t row = 0; row < part.rows; ++row)
      contiguous_to_float32(matrix, matrix.row_offset(part.first + row) + part.begin, part.depth,
                            out + row * part.depth);
  }
  if (matrix.scale != 1.0f) rows::scale(out, part.rows * part.depth, matrix.scale);
}

void apply_linear(ConstTensorView x, const Linear& layer, TensorView y) {
  apply_linear(x, {{layer, y}});
}

void apply_linear(ConstTensorView x, const WeightMatrix& weight, TensorView y) {
  apply_linear(x, Linear{weight, {}}, y);
}

void apply_linear(ConstTensorView x, std::initializer_list<LinearOutput> projections) {
  for (const auto& [layer, y] : projections) {
    QKSCOPE_ASSERT(x.is_contiguous() && x.dim(1) == layer.weight.in());
    QKSCOPE_ASSERT(y.dim(0) == x.dim(0) && y.dim(1) == layer.weight.out() && y.stride(1) == 1);
  }
  if (x.dim(0) <= gemv::kMostRows) return multiply_few_rows(x, projections);
  const auto blocks = split_into_column_blocks(projections, kBlockColumns);
  const auto count = std::ssize(blocks);
  PackedInput packed(x);
  multiply_blocks(packed, blocks,
                  count < 8 * std::int64_t{thread_count()} &&
                      count * packed_block_floats(x.dim(1)) <= kMostSharedWeights);
}

void choose_experts(ConstTensorView logits, const ExpertsConfig& config,
                    std::span<const float> bias, TensorView weights, TensorView indices) {
  const auto experts = logits.dim(1);
  const auto k = weights.dim(1);
  QKSCOPE_ASSERT(logits.is_contiguous() && weights.is_contiguous() && indices.is_contiguous());
  QKSCOPE_ASSERT(weights.shape() == indices.shape() && k <= experts);
  parallel_for(logits.dim(0), [&](std::int64_t row) {
    thread_local std::vector<std::int64_t> order;
    thread_local std::vector<float> scores;
    thread_local std::vector<float> selection;
    const float* l = logits.data<float>() + row * experts;
    float* weight = weights.data<float>() + row * k;
    float* index = indices.data<float>() + row * k;
    scores.assign(l, l + experts);
    if (config.sigmoid)
      for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
    else
      rows::softmax(l, experts, scores.data());
    selection.assign(l, l + experts);  // the same order as that of the scores
    if (config.groups > 1) selection = scores;
    for (std::size_t e = 0; e < bias.size(); ++e) selection[e] = scores[e] + bias[e];
    if (config.groups > 1) exclude_low_scored_groups(selection, config);
    order.resize(as_index(experts));
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(),
                      [](std::int64_t a, std::int64_t b) {
                        const float x = replace_nan_by_infinity(selection[as_index(a)]);
                        const float y = replace_nan_by_infinity(selection[as_index(b)]);
                        return x > y || (x == y && a < b);
                      });
    float sum = 0.0f;
    for (std::int64_t i = 0; i < k; ++i) {
      index[i] = static_cast<float>(order[as_index(i)]);
      weight[i] = scores[as_index(order[as_index(i)])];
      sum += weight[i];
    }
    const auto scale = static_cast<float>(config.weight_scale);
    for (std::int64_t i = 0; i < k; ++i) weight[i] *= config.normalized ? scale / sum : scale;
  });
}

RowsByExpert group_rows_by_expert(ConstTensorView indices, std::int64_t experts) {
  const auto k = indices.dim(1);
  std::vector<std::int64_t> chosen;
  chosen.reserve(as_index(indices.size()));
  RowsByExpert rows{.per_token = k,
                    .begin = std::vector<std::int64_t>(as_index(experts) + 1),
                    .slots = std::vector<std::int64_t>(as_index(indices.size()))};
  for (std::int64_t slot = 0; slot < indices.size(); ++slot) {
    const auto row = slot / k;
    const float* const first = indices.data<float>() + row * k;
    const float index = first[slot % k];
    if (!(index >= 0.0f && index < static_cast<float>(experts)) || index != std::floor(index))
      reject("expert index {} in row {}: expected the number of an expert, 0 to {}", index, row,
             experts - 1);
    if (std::count(first, first + slot % k, index) > 0)
      reject("row {} chooses expert {} twice; its {} experts must differ", row, index, k);
    chosen.push_back(static_cast<std::int64_t>(index));
    ++rows.begin[as_index(chosen.back()) + 1];
  }
  std::partial_sum(rows.begin.begin(), rows.begin.end(), rows.begin.begin());
  auto next = rows.begin;
  for (std::int64_t slot = 0; slot < indices.size(); ++slot) {
    auto& place = next[as_index(chosen[as_index(slot)])];
    rows.slots[as_index(place++)] = slot;
  }
  return rows;
}

void project_experts_gate_up(ConstTensorView x, const RowsByExpert& by_expert,
                             std::span<const ExpertWeights> experts, ConstTensorView factors,
                             TensorView gate, TensorView up) {
  QKSCOPE_ASSERT(gate.is_contiguous() && up.is_contiguous() && gate.shape() == up.shape());
  static thread_local ScratchFloats inputs;
  static thread_local ScratchFloats gates;
  static thread_local ScratchFloats ups;
  const auto d_model = x.dim(1);
  const auto d_mlp = gate.dim(2);
  const bool gated = !experts.front().gate.weight.values.empty();
  for_each_expert(by_expert, [&](std::size_t expert, std::span<const std::int64_t> slots) {
    const auto count = std::ssize(slots);
    const auto taken = scratch_matrix(inputs, count, d_model);
    const auto g = scratch_matrix(gates, count, d_mlp);
    const auto u = scratch_matrix(ups, count, d_mlp);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      std::copy_n(x.data<float>() + slot / by_expert.per_token * d_model, d_model,
                  taken.data<float>() + i * d_model);
      if (!factors.empty())
        rows::scale(taken.data<float>() + i * d_model, d_model, factors.data<float>()[slot]);
    });
    if (gated)
      apply_linear(taken, {{experts[expert].gate, g}, {experts[expert].up, u}});
    else
      apply_linear(taken, experts[expert].up, g);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      std::copy_n(g.data<float>() + i * d_mlp, d_mlp, gate.data<float>() + slot * d_mlp);
      if (gated) std::copy_n(u.data<float>() + i * d_mlp, d_mlp, up.data<float>() + slot * d_mlp);
    });
  });
}

void project_experts_down(ConstTensorView gated, const RowsByExpert& by_expert,
                          std::span<const ExpertWeights> experts, ConstTensorView weights,
                          TensorView y) {
  QKSCOPE_ASSERT(gated.is_contiguous() && y.is_contiguous());
  static thread_local ScratchFloats inputs;
  static thread_local ScratchFloats outputs;
  const auto d_model = y.dim(1);
  const auto d_mlp = gated.dim(2);
  std::fill_n(y.data<float>(), y.size(), 0.0f);
  for_each_expert(by_expert, [&](std::size_t expert, std::span<const std::int64_t> slots) {
    const auto count = std::ssize(slots);
    const auto taken = scratch_matrix(inputs, count, d_mlp);
    const auto made = scratch_matrix(outputs, count, d_model);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      std::copy_n(gated.data<float>() + slot * d_mlp, d_mlp, taken.data<float>() + i * d_mlp);
    });
    apply_linear(taken, experts[expert].down, made);
    for_each_slot(slots, [&](std::int64_t i, std::int64_t slot) {
      rows::add_scaled(y.data<float>() + slot / by_expert.per_token * d_model,
                       made.data<float>() + i * d_model, d_model,
                       weights.empty() ? 1.0f : weights.data<float>()[slot]);
    });
  });
}

}  // namespace qkscope
