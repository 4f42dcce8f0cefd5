#include "ops/gemv.h"

#include <algorithm>
#include <utility>

#include "core/convert.h"
#include "core/cpu_target.h"
#include "ops/gemm.h"
#include "ops/weight_rows.h"
#include "ops/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef QKSCOPE_OPS_GEMV_PART
#define QKSCOPE_OPS_GEMV_PART
namespace qkscope::gemv {

// Some outputs of one stretch of the depth.
template <typename T>
struct Part {
  const float* x;  // (rows, x_stride), from the stretch's begin on
  std::int64_t x_stride;
  const T* weights[kGroup];  // the outputs' weights, from the stretch's begin on
  const std::byte* next;     // what will be read after these, of `next_bytes`
  std::int64_t next_bytes;
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

// kRows rows of x with 4 kFours outputs.
template <typename T, int kRows, int kFours>
void multiply_part(const Part<T>& p) {
  const Four d;
  constexpr int kStep = Columns<T>::kStep;
  Vector sum[kRows][kFours];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) sum[row][f] = hn::Zero(d);
  const auto steps = p.depth / kStep;
  const auto ahead = steps > 0 ? (p.next_bytes + steps - 1) / steps : 0;
  for (std::int64_t k = 0; k < steps * kStep; k += kStep) {
    for (std::int64_t byte = k / kStep * ahead; byte < (k / kStep + 1) * ahead; byte += kLine)
      __builtin_prefetch(p.next + byte);
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

// As many outputs at a time as give eight sums: enough to be under way, and few enough to stay in
// registers.
template <typename T, int kRows>
void multiply_group(Part<T> part) {
  constexpr int kFours = kRows <= 2 ? 8 / kRows : 2;
  constexpr int kParts = kGroup / (4 * kFours);
  part.next_bytes /= kParts;
  for (int i = 0; i < kParts; ++i) {
    multiply_part<T, kRows, kFours>(part);
    std::copy_n(part.weights + 4 * kFours, kGroup - 4 * kFours, part.weights);
    part.y += 4 * kFours;
    part.next += part.next_bytes;
  }
}

template <typename T>
void multiply_rows(Part<T> part, std::int64_t rows) {
  for (; rows >= 4; rows -= 4) {
    multiply_group<T, 4>(part);
    part.x += 4 * part.x_stride;
    part.y += 4 * part.y_stride;
    part.next_bytes = 0;
  }
  if (rows == 3) multiply_group<T, 3>(part);
  if (rows == 2) multiply_group<T, 2>(part);
  if (rows == 1) multiply_group<T, 1>(part);
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

// A group at the end of the outputs is computed whole, with its last weights again and again, in y
// of its own.
class GroupOutput {
 public:
  GroupOutput(const Product& product, std::int64_t first, std::int64_t count)
      : product_(product), first_(first), count_(count) {}

  float* y() { return whole() ? product_.y + first_ : side_; }
  std::int64_t stride() const { return whole() ? product_.y_stride : kGroup; }
  void store() const {
    if (whole()) return;
    for (std::int64_t row = 0; row < product_.rows; ++row)
      std::copy_n(side_ + row * kGroup, count_, product_.y + row * product_.y_stride + first_);
  }

 private:
  bool whole() const { return count_ == kGroup; }

  const Product& product_;
  std::int64_t first_;
  std::int64_t count_;
  float side_[kMostRows * kGroup];
};

// Channels [k, k + depth) of a group, whose weights are still to be named.
template <typename T>
Part<T> part_of(const Product& product, GroupOutput& output, std::int64_t k, std::int64_t depth) {
  return {.x = product.x + k,
          .x_stride = product.weight.in(),
          .weights = {},
          .next = nullptr,
          .next_bytes = 0,
          .depth = depth,
          .add = k > 0,
          .y = output.y(),
          .y_stride = output.stride()};
}

// Weights as they are stored.
template <typename T>
void multiply_stored(const Product& product, std::int64_t first, std::int64_t count,
                     std::int64_t rest) {
  const auto& weight = product.weight;
  const auto* values = reinterpret_cast<const T*>(weight.values.bytes());
  const auto in = weight.in();
  GroupOutput output(product, first, count);
  for_each_stretch(in, [&](std::int64_t k, std::int64_t depth) {
    auto part = part_of<T>(product, output, k, depth);
    for (std::int64_t i = 0; i < kGroup; ++i)
      part.weights[i] = values + weight.row_offset(first + std::min(i, count - 1)) + k;
    // The group that follows lies right behind this one: it is fetched in the order of memory.
    const auto ahead = std::min(rest, kGroup) * depth * static_cast<std::int64_t>(sizeof(T));
    part.next = reinterpret_cast<const std::byte*>(values + weight.row_offset(first) + count * in) +
                std::min(rest, kGroup) * k * static_cast<std::int64_t>(sizeof(T));
    part.next_bytes = ahead;
    multiply_part(part, product.rows);
  });
  output.store();
}

// Weights that have to be widened first: FP8, and those that are stored (in, out).
void multiply_widened(const Product& product, std::int64_t first, std::int64_t count) {
  const auto in = product.weight.in();
  thread_local Workspace memory;
  GroupOutput output(product, first, count);
  for_each_stretch(in, [&](std::int64_t k, std::int64_t depth) {
    float* widened = memory.floats(kGroup * depth);
    widen_rows(product.weight, {first, count, k, depth}, widened);
    auto part = part_of<float>(product, output, k, depth);
    for (std::int64_t i = 0; i < kGroup; ++i)
      part.weights[i] = widened + std::min(i, count - 1) * depth;
    multiply_part(part, product.rows);
  });
  output.store();
}

}  // namespace

void multiply(const Product& product, std::int64_t first, std::int64_t count) {
  const auto& weight = product.weight;
  const bool stored = weight.scale == 1.0f && !weight.transposed();
  for (std::int64_t done = 0; done < count; done += kGroup) {
    const auto outputs = std::min(kGroup, count - done);
    const auto rest = count - done - outputs;
    if (stored && weight.values.dtype() == DType::f32)
      multiply_stored<float>(product, first + done, outputs, rest);
    else if (stored && weight.values.dtype() == DType::bf16)
      multiply_stored<Bf16>(product, first + done, outputs, rest);
    else if (stored && weight.values.dtype() == DType::f16)
      multiply_stored<Fp16>(product, first + done, outputs, rest);
    else
      multiply_widened(product, first + done, outputs);
  }
}

}  // namespace qkscope::gemv
#endif
