// What the tests of the attention kernels feed them: fused q, k, v rows of packed sequences, and
// the keys each chosen query sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "device_buffer.h"

namespace qkscope {

// Queries of packed sequences, causal, and with `window` > 0 only the last `window` keys.
struct Mask {
  std::string name;
  std::vector<std::int32_t> sequences;  // lengths
  std::int32_t window = 0;
  std::int32_t every = 1;  // query rows taken: every so many, from the first
  bool begins = true;      // whether the kernel hears where sequences begin
  std::int64_t gap = 8;    // elements between the rows of q, k, v and of z
};

struct Ranges {
  std::vector<std::int32_t> rows, first, last, sequence;  // (queries)
};

inline Ranges ranges_of(const Mask& mask) {
  Ranges ranges;
  std::int32_t begin = 0;
  for (const auto length : mask.sequences) {
    for (auto row = begin; row < begin + length; ++row) {
      if (row % mask.every != 0) continue;
      ranges.rows.push_back(row);
      ranges.first.push_back(mask.window > 0 ? std::max(begin, row - mask.window + 1) : begin);
      ranges.last.push_back(row);
      ranges.sequence.push_back(begin);
    }
    begin += length;
  }
  return ranges;
}

struct HeadShape {
  std::int64_t n_heads, n_kv_heads, d_head;
  std::int64_t d_value = d_head;
  std::int64_t width() const {  // of a fused row
    return (n_heads + n_kv_heads) * d_head + n_kv_heads * d_value;
  }
};

// Normal values, as the type holds them; the same on host and device.
struct FusedRows {
  FusedRows(std::int64_t rows, const HeadShape& shape, std::int64_t gap, DType type, double cap = 0)
      : heads(shape),
        dtype(type),
        stride(shape.width() + gap),
        softcap(cap),
        values(random(rows * stride, type)),
        device(encoded(values, type)) {}

  static std::vector<float> random(std::int64_t count, DType dtype) {
    static const auto pool = [] {
      std::mt19937 generator(7);
      std::normal_distribution<float> normal;
      std::vector<float> numbers(1 << 20);
      for (auto& number : numbers) number = normal(generator);
      return numbers;
    }();
    std::vector<float> drawn(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < drawn.size(); ++i)
      drawn[i] = pool[(i * 3 + i / 77777) % pool.size()];
    return decoded(encoded(drawn, dtype), dtype);
  }

  const float* q(std::int64_t row, std::int64_t head) const {
    return values.data() + row * stride + head * heads.d_head;
  }
  const float* k(std::int64_t row, std::int64_t head) const {
    return q(row, heads.n_heads + kv(head));
  }
  const float* v(std::int64_t row, std::int64_t head) const {
    return q(row, heads.n_heads + heads.n_kv_heads) + kv(head) * heads.d_value;
  }
  const void* on_device(const float* value) const {
    return device.get<std::byte>() +
           (value - values.data()) * static_cast<std::int64_t>(dtype_size(dtype));
  }
  // Peaked but not one-hot: scores have a standard deviation of 2.
  float scale() const { return 2.0f / std::sqrt(static_cast<float>(heads.d_head)); }

  HeadShape heads;
  DType dtype;
  std::int64_t stride;
  double softcap;             // of the scores; 0: none
  std::vector<float> values;  // (rows, stride)
  DeviceBuffer device;        // the same

 private:
  std::int64_t kv(std::int64_t head) const { return head / (heads.n_heads / heads.n_kv_heads); }
};

// Softmax weights of one query over rows [first, last] of k, in float64.
inline std::vector<double> plain_weights(const FusedRows& rows, std::int32_t row, std::int64_t head,
                                         std::int32_t first, std::int32_t last,
                                         std::vector<double>& scores) {
  scores.clear();
  const float* q = rows.q(row, head);
  for (auto key = first; key <= last; ++key) {
    const float* k = rows.k(key, head);
    double sum = 0.0;
    for (std::int64_t i = 0; i < rows.heads.d_head; ++i) sum += static_cast<double>(q[i]) * k[i];
    const double score = sum * rows.scale();
    scores.push_back(rows.softcap > 0 ? rows.softcap * std::tanh(score / rows.softcap) : score);
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  double total = 0.0;
  for (const double score : scores) total += weights.emplace_back(std::exp(score - maximum));
  for (auto& weight : weights) weight /= total;
  return weights;
}

// Relative to the weighted sum of |v|: each weight is rounded to the type (half a unit in its last
// place, 2^-8 for bfloat16 and 2^-11 for float16), and so is the result. The float32 parts (scores
// of up to 512 products, up to 495 weights, an approximate exponential, the matrix units' sums) add
// up to 1e-4 on the matrix units, and 1e-5 in plain float32.
inline double rounding(DType dtype) {
  return dtype == DType::bf16 ? 1.0 / 256 : dtype == DType::f16 ? 1.0 / 2048 : 0.0;
}
inline double arithmetic(DType dtype) {
  return dtype == DType::f32 ? 1e-5 : 1e-4;
}

// The largest error of one query and head, as a share of what is allowed.
inline double error_share(const FusedRows& rows, const Ranges& ranges, std::size_t query,
                          std::int64_t head, const float* z) {
  std::vector<double> scores;
  const auto first = ranges.first[query];
  const auto weights =
      plain_weights(rows, ranges.rows[query], head, first, ranges.last[query], scores);
  const auto d_value = static_cast<std::size_t>(rows.heads.d_value);
  std::vector<double> expected(d_value, 0.0), mass(d_value, 0.0);
  for (std::size_t key = 0; key < weights.size(); ++key) {
    const float* v = rows.v(first + static_cast<std::int32_t>(key), head);
    for (std::size_t i = 0; i < d_value; ++i) {
      expected[i] += weights[key] * v[i];
      mass[i] += weights[key] * std::abs(v[i]);
    }
  }
  double worst = 0.0;
  for (std::size_t i = 0; i < d_value; ++i) {
    const double allowed = (rounding(rows.dtype) + arithmetic(rows.dtype)) * mass[i] +
                           rounding(rows.dtype) * std::abs(expected[i]);
    const double error = std::abs(static_cast<double>(z[i]) - expected[i]);
    worst = std::isfinite(error) ? std::max(worst, error / allowed) : INFINITY;
  }
  return worst;
}

}  // namespace qkscope
