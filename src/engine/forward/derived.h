// Derived hook points: values computed on the host from activations and weights, on request only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

inline void copy_floats(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, as_index(count) * sizeof(float));
}

// Columns [begin, begin + count) of a matrix, as a view.
inline WeightMatrix some_columns(const WeightMatrix& matrix, std::int64_t begin,
                                 std::int64_t count) {
  const auto& v = matrix.values;
  return {strided_view(v, begin * v.stride(1), {v.dim(0), count}, v.strides()), matrix.scale};
}

// Rows (d, in) of one head of a matrix whose heads may be in separate blocks.
inline Linear rows_of_head(const Linear& linear, std::int64_t head, std::int64_t d) {
  const auto& [weight, bias] = linear;
  const auto& v = weight.values;
  const Shape strides{v.stride(v.rank() - 2), v.stride(v.rank() - 1)};
  Linear part;
  part.weight = {strided_view(v, weight.row_offset(head * d), {d, weight.in()}, strides),
                 weight.scale};
  if (!bias.empty()) part.bias.assign(bias.begin() + head * d, bias.begin() + (head + 1) * d);
  return part;
}

// Copies head `head` of (rows, heads, width).
inline Tensor head_of(ConstTensorView all, std::int64_t head) {
  const auto width = all.dim(2);
  Tensor one({all.dim(0), width});
  for (std::int64_t row = 0; row < all.dim(0); ++row)
    copy_floats(one.data<float>() + row * width,
                all.data<float>() + (row * all.dim(1) + head) * width, width);
  return one;
}

// Returns shape (rows, 1): the divisor of the norm for each row of x (rows, d_model).
inline Tensor norm_scales(ConstTensorView x, const ModelConfig& model) {
  const auto n = x.dim(1);
  Tensor scales({x.dim(0), 1});
  parallel_ranges(x.dim(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      const float* values = x.data<float>() + row * n;
      double mean = 0.0;
      for (std::int64_t i = 0; model.norm == NormKind::layer && i < n; ++i) mean += values[i];
      mean /= static_cast<double>(n);
      double squares = 0.0;
      for (std::int64_t i = 0; i < n; ++i) squares += (values[i] - mean) * (values[i] - mean);
      scales.data<float>()[row] =
          static_cast<float>(std::sqrt(squares / static_cast<double>(n) + model.norm_eps));
    }
  });
  return scales;
}

// Returns shape (rows, heads, d_model): the contribution of each head of z (rows, heads, d_head)
// through the output projection (d_model, heads * d_head), without bias.
inline Tensor head_results(ConstTensorView z, const WeightMatrix& output) {
  const auto heads = z.dim(1);
  const auto d = z.dim(2);
  const auto width = output.out();
  Tensor results({z.dim(0), heads, width});
  for (std::int64_t head = 0; head < heads; ++head) {
    const TensorView head_result(
        results.view().bytes() + head * width * std::int64_t{sizeof(float)}, DType::f32,
        {z.dim(0), width}, {heads * width, 1}, {});
    linear(head_of(z, head), some_columns(output, head * d, d), head_result);
  }
  return results;
}

// Returns shape (rows, heads, d_model): a copy of x (rows, d_model) per head.
inline Tensor repeat_per_head(ConstTensorView x, std::int64_t heads) {
  const auto width = x.dim(1);
  Tensor all({x.dim(0), heads, width});
  for (std::int64_t i = 0; i < x.dim(0) * heads; ++i)
    copy_floats(all.data<float>() + i * width, x.data<float>() + i / heads * width, width);
  return all;
}

// Returns the first `heads` heads of (rows, heads, d_model).
inline Tensor first_heads(ConstTensorView all, std::int64_t heads) {
  const auto width = all.dim(2);
  Tensor some({all.dim(0), heads, width});
  for (std::int64_t row = 0; row < all.dim(0); ++row)
    copy_floats(some.data<float>() + row * heads * width,
                all.data<float>() + row * all.dim(1) * width, heads * width);
  return some;
}

// Returns some rows (empty: all) of (rows, heads, d_model).
inline Tensor select_rows(ConstTensorView all, std::span<const std::int64_t> rows) {
  if (rows.empty()) return first_heads(all, all.dim(1));
  const auto width = all.dim(1) * all.dim(2);
  Tensor some({std::ssize(rows), all.dim(1), all.dim(2)});
  float* to = some.data<float>();
  for (const auto row : rows) {
    copy_floats(to, all.data<float>() + row * width, width);
    to += width;
  }
  return some;
}

// q, k or v of heads whose input an observer replaced.
class ProjectedHeads {
 public:
  ProjectedHeads(const ModelConfig& model, const NormWeights& norm, const Linear& linear)
      : model_(&model), norm_(&norm), linear_(&linear) {}

  // Projects heads whose input (rows, heads, d_model) differs from x (rows, d_model).
  void project_changed(ConstTensorView x, ConstTensorView inputs) {
    const auto d = model_->d_head;
    for (std::int64_t head = 0; head < inputs.dim(1); ++head) {
      Tensor input = head_of(inputs, head);
      if (std::memcmp(input.view().bytes(), x.bytes(), x.size_bytes()) == 0) continue;
      normalize(model_->norm, input, *norm_, model_->norm_eps, input);
      Tensor values({x.dim(0), d});
      linear(input, rows_of_head(*linear_, head, d), values);
      if (model_->qkv_clip > 0.0) clip(values, model_->qkv_clip);
      heads_.push_back({head, std::move(values)});
    }
  }
  bool empty() const { return heads_.empty(); }

  // Returns a function that writes the projected heads into (rows, heads, d_head).
  std::function<void(TensorView)> replace() const {
    return [this](TensorView all) {
      const auto d = all.dim(2);
      for (const auto& [number, values] : heads_)
        for (std::int64_t row = 0; row < all.dim(0); ++row)
          copy_floats(all.data<float>() + (row * all.dim(1) + number) * d,
                      values.data<float>() + row * d, d);
    };
  }

 private:
  struct Head {
    std::int64_t number;
    Tensor values;  // (rows, d_head)
  };

  const ModelConfig* model_;
  const NormWeights* norm_;
  const Linear* linear_;
  std::vector<Head> heads_;
};

}  // namespace qkscope
