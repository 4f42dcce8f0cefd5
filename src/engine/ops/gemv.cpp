#include "engine/ops/gemv.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/core/convert.h"
#include "base/core/cpu_target.h"
#include "engine/ops/gemm.h"
#include "engine/ops/weight_rows.h"
#include "engine/ops/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef QKSCOPE_OPS_GEMV_PART
#define QKSCOPE_OPS_GEMV_PART
namespace qkscope::gemv {

// Outputs that are computed together: enough sums to be under way, few enough that the lines of
// their weights come from memory in order.
constexpr std::int64_t kTile = 8;

// A tile of outputs of one stretch of the depth.
template <typename T>
struct Part {
  const float* x;  // (rows, x_stride), from the stretch's begin on
  std::int64_t x_stride;
  const T* weights[kTile];  // the outputs' weights, from the stretch's begin on
  const std::byte* ahead;   // as many bytes that will be read later, or null
  std::int64_t depth;
  bool add;  // to what y holds
  float* y;  // (rows, y_stride), from the first output on
  std::int64_t y_stride;
};

}  // namespace qkscope::gemv
#endif

HWY_BEFORE_NAMESPACE();
namespace qkscope::gemv::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Four outputs side by side. Wider vectors would not bring the weights from memory any faster.
using Four = hn::CappedTag<float, 4>;
using FourWords = hn::CappedTag<std::uint32_t, 4>;
using Vector = hn::Vec<Four>;
using Words = hn::Vec<FourWords>;
constexpr std::int64_t kLine = 64;  // bytes

// out[k][i] = rows[i][k]
template <typename D, typename V>
HWY_INLINE void transpose(D d, V (&rows)[4]) {
  const auto low01 = hn::InterleaveLower(d, rows[0], rows[1]);
  const auto low23 = hn::InterleaveLower(d, rows[2], rows[3]);
  const auto high01 = hn::InterleaveUpper(d, rows[0], rows[1]);
  const auto high23 = hn::InterleaveUpper(d, rows[2], rows[3]);
  rows[0] = hn::ConcatLowerLower(d, low23, low01);
  rows[1] = hn::ConcatUpperUpper(d, low23, low01);
  rows[2] = hn::ConcatLowerLower(d, high23, high01);
  rows[3] = hn::ConcatUpperUpper(d, high23, high01);
}

// Values k to k + kStep - 1 of four outputs: columns[k], each of all four.
template <typename T>
struct Columns;

template <>
struct Columns<float> {
  static constexpr int kStep = 4;
  static HWY_INLINE void load(const float* const* weights, std::int64_t k, Vector (&columns)[4]) {
    for (int i = 0; i < 4; ++i) columns[i] = hn::LoadU(Four(), weights[i] + k);
    transpose(Four(), columns);
  }
};

template <>
struct Columns<Fp16> {
  static constexpr int kStep = 4;
  static HWY_INLINE void load(const Fp16* const* weights, std::int64_t k, Vector (&columns)[4]) {
    const hn::Rebind<hwy::float16_t, Four> halves;
    for (int i = 0; i < 4; ++i)
      columns[i] = hn::PromoteTo(
          Four(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(weights[i] + k)));
    transpose(Four(), columns);
  }
};

// bfloat16 is the upper half of a float32: pairs of them are transposed as words, and split then.
template <>
struct Columns<Bf16> {
  static constexpr int kStep = 8;
  static HWY_INLINE void load(const Bf16* const* weights, std::int64_t k, Vector (&columns)[8]) {
    const FourWords words;
    Words pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] =
          hn::BitCast(words, hn::LoadU(hn::Repartition<std::uint16_t, FourWords>(),
                                       reinterpret_cast<const std::uint16_t*>(weights[i] + k)));
    transpose(words, pairs);
    for (int i = 0; i < 4; ++i) {
      columns[2 * i] = hn::BitCast(Four(), hn::ShiftLeft<16>(pairs[i]));
      columns[2 * i + 1] =
          hn::BitCast(Four(), hn::And(pairs[i], hn::Set(words, std::uint32_t{0xffff0000})));
    }
  }
};

// kStep values of a row of x, each in all lanes of a vector.
#if HWY_ARCH_ARM_A64
template <int kStep>
class XValues {  // NEON multiplies by one lane of a register
 public:
  HWY_INLINE explicit XValues(const float* x) {
    for (int i = 0; i < kStep / 4; ++i) values_[i] = hn::LoadU(Four(), x + 4 * i);
  }
  template <int i>
  HWY_INLINE Vector get() const {
    return hn::Broadcast<i % 4>(values_[i / 4]);
  }

 private:
  Vector values_[kStep / 4];
};
#else
template <int kStep>
class XValues {
 public:
  HWY_INLINE explicit XValues(const float* x) : values_(x) {}
  template <int i>
  HWY_INLINE Vector get() const {
    return hn::Set(Four(), values_[i]);
  }

 private:
  const float* values_;
};
#endif

template <int kStep, int... i>
HWY_INLINE Vector add_columns(std::integer_sequence<int, i...>, const Vector (&columns)[kStep],
                              const float* x, Vector sum) {
  const XValues<kStep> values(x);
  ((sum = hn::MulAdd(columns[i], values.template get<i>(), sum)), ...);
  return sum;
}

HWY_INLINE float widened(float value) {
  return value;
}
template <typename T>
HWY_INLINE float widened(T value) {
  return to_float(value);
}

// kRows rows of x.
template <typename T, int kRows>
void multiply_part(const Part<T>& p) {
  const Four d;
  constexpr int kFours = kTile / 4;
  constexpr int kStep = Columns<T>::kStep;
  constexpr std::int64_t kStepBytes = kTile * kStep * static_cast<std::int64_t>(sizeof(T));
  Vector sum[kRows][kFours];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) sum[row][f] = hn::Zero(d);
  const auto steps = p.depth / kStep;
  for (std::int64_t k = 0; k < steps * kStep; k += kStep) {
    if (p.ahead != nullptr)
      for (std::int64_t byte = 0; byte < kStepBytes; byte += kLine)
        __builtin_prefetch(p.ahead + k / kStep * kStepBytes + byte, /*write=*/0, /*to L2=*/2);
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) {
      Vector columns[kStep];
      Columns<T>::load(p.weights + 4 * f, k, columns);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row)
        sum[row][f] = add_columns(std::make_integer_sequence<int, kStep>(), columns,
                                  p.x + row * p.x_stride + k, sum[row][f]);
    }
  }
  for (auto k = steps * kStep; k < p.depth; ++k) {
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) {
      float column[4];
      for (int i = 0; i < 4; ++i) column[i] = widened(p.weights[4 * f + i][k]);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row)
        sum[row][f] =
            hn::MulAdd(hn::LoadU(d, column), hn::Set(d, p.x[row * p.x_stride + k]), sum[row][f]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) {
      float* y = p.y + row * p.y_stride + 4 * f;
      hn::StoreU(p.add ? hn::Add(hn::LoadU(d, y), sum[row][f]) : sum[row][f], d, y);
    }
  }
}

template <typename T>
void multiply_rows(Part<T> part, std::int64_t rows) {
  for (; rows >= 4; rows -= 4) {
    multiply_part<T, 4>(part);
    part.x += 4 * part.x_stride;
    part.y += 4 * part.y_stride;
    part.ahead = nullptr;
  }
  if (rows == 3) multiply_part<T, 3>(part);
  if (rows == 2) multiply_part<T, 2>(part);
  if (rows == 1) multiply_part<T, 1>(part);
}

void multiply_f32_kernel(const Part<float>& part, std::int64_t rows) {
  multiply_rows(part, rows);
}
void multiply_f16_kernel(const Part<Fp16>& part, std::int64_t rows) {
  multiply_rows(part, rows);
}
void multiply_bf16_kernel(const Part<Bf16>& part, std::int64_t rows) {
  multiply_rows(part, rows);
}

}  // namespace qkscope::gemv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::gemv {

HWY_EXPORT(multiply_f32_kernel);
HWY_EXPORT(multiply_f16_kernel);
HWY_EXPORT(multiply_bf16_kernel);

namespace {

void multiply_part(const Part<float>& part, std::int64_t rows) {
  QKSCOPE_DISPATCH(multiply_f32_kernel)(part, rows);
}
void multiply_part(const Part<Fp16>& part, std::int64_t rows) {
  QKSCOPE_DISPATCH(multiply_f16_kernel)(part, rows);
}
void multiply_part(const Part<Bf16>& part, std::int64_t rows) {
  QKSCOPE_DISPATCH(multiply_bf16_kernel)(part, rows);
}

// Calls body(begin, depth) for each stretch of the depth.
template <typename Body>
void for_each_stretch(std::int64_t depth, Body body) {
  for (std::int64_t k = 0; k < depth; k += gemm::stretch(depth))
    body(k, std::min(gemm::stretch(depth), depth - k));
}

// How far ahead of the multiplication weights are fetched into the second-level cache: the streams
// of a tile's rows are short, so that the hardware has hardly seen them before they end.
constexpr std::int64_t kAhead = std::int64_t{64} << 10;  // bytes

// A tile at the end of the outputs is computed whole, with its last weights again and again, in y
// of its own.
class TileOutput {
 public:
  TileOutput(const Product& product, std::int64_t first, std::int64_t count)
      : product_(product), first_(first), count_(count) {}

  float* y() { return whole() ? product_.y + first_ : side_; }
  std::int64_t stride() const { return whole() ? product_.y_stride : kTile; }
  void store() const {
    if (whole()) return;
    for (std::int64_t row = 0; row < product_.rows; ++row)
      std::copy_n(side_ + row * kTile, count_, product_.y + row * product_.y_stride + first_);
  }

 private:
  bool whole() const { return count_ == kTile; }

  const Product& product_;
  std::int64_t first_;
  std::int64_t count_;
  float side_[kMostRows * kTile];
};

// Channels [k, k + depth) of a tile, whose weights are still to be named.
template <typename T>
Part<T> part_of(const Product& product, TileOutput& output, std::int64_t k, std::int64_t depth) {
  return {.x = product.x + k,
          .x_stride = product.weight.in(),
          .weights = {},
          .ahead = nullptr,
          .depth = depth,
          .add = k > 0,
          .y = output.y(),
          .y_stride = output.stride()};
}

// A tile of weights as they are stored, with `rest` outputs after it.
template <typename T>
void multiply_stored(const Product& product, std::int64_t first, std::int64_t count,
                     std::int64_t rest) {
  const auto& weight = product.weight;
  const auto* values = reinterpret_cast<const T*>(weight.values.bytes());
  const auto size = static_cast<std::int64_t>(sizeof(T));
  const auto* begin = reinterpret_cast<const std::byte*>(values + weight.row_offset(first));
  const bool fetches = rest * weight.in() * size >= kAhead;
  TileOutput output(product, first, count);
  for_each_stretch(weight.in(), [&](std::int64_t k, std::int64_t depth) {
    auto part = part_of<T>(product, output, k, depth);
    for (std::int64_t i = 0; i < kTile; ++i)
      part.weights[i] = values + weight.row_offset(first + std::min(i, count - 1)) + k;
    if (fetches) part.ahead = begin + kAhead + kTile * k * size;
    multiply_part(part, product.rows);
  });
  output.store();
}

// Weights that have to be widened first: FP8, and those that are stored (in, out). Up to kGroup
// outputs.
void multiply_widened(const Product& product, std::int64_t first, std::int64_t count) {
  const auto in = product.weight.in();
  thread_local Workspace memory;
  std::vector<TileOutput> outputs;
  outputs.reserve(kGroup / kTile);
  for (std::int64_t done = 0; done < count; done += kTile)
    outputs.emplace_back(product, first + done, std::min(kTile, count - done));
  for_each_stretch(in, [&](std::int64_t k, std::int64_t depth) {
    float* widened = memory.floats(kGroup * depth);
    widen_rows(product.weight, {first, count, k, depth}, widened);
    for (std::size_t tile = 0; tile < outputs.size(); ++tile) {
      auto part = part_of<float>(product, outputs[tile], k, depth);
      for (std::int64_t i = 0; i < kTile; ++i)
        part.weights[i] =
            widened + std::min(static_cast<std::int64_t>(tile) * kTile + i, count - 1) * depth;
      multiply_part(part, product.rows);
    }
  });
  for (const auto& output : outputs) output.store();
}

// Weights as they are stored.
template <typename T>
void multiply_all_stored(const Product& product, std::int64_t first, std::int64_t count) {
  for (std::int64_t done = 0; done < count; done += kTile) {
    const auto outputs = std::min(kTile, count - done);
    multiply_stored<T>(product, first + done, outputs, count - done - outputs);
  }
}

}  // namespace

void multiply(const Product& product, std::int64_t first, std::int64_t count) {
  const auto& weight = product.weight;
  const bool stored = weight.scale == 1.0f && !weight.transposed();
  const auto dtype = weight.values.dtype();
  if (stored && dtype == DType::f32) return multiply_all_stored<float>(product, first, count);
  if (stored && dtype == DType::bf16) return multiply_all_stored<Bf16>(product, first, count);
  if (stored && dtype == DType::f16) return multiply_all_stored<Fp16>(product, first, count);
  for (std::int64_t done = 0; done < count; done += kGroup)
    multiply_widened(product, first + done, std::min(kGroup, count - done));
}

}  // namespace qkscope::gemv
#endif
