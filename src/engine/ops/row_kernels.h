// Loops over rows of float32 values, compiled for every CPU target: what the operations of this
// folder do besides matrix products. Rows may begin at any address. Where a function has an output,
// it may be one of its inputs.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope::rows {

void scale(float* x, std::int64_t count, float factor);  // x *= factor
void add(float* x, const float* y, std::int64_t count);  // x += y
void add_scaled(float* x, const float* y, std::int64_t count,
                float factor);  // x += factor y, fused

// out[r] = factor * sum of x[i] y[r][i], in 16 interleaved lanes of fused multiply-adds.
struct DotRows {
  const float* x;  // (n)
  const float* y;  // (rows, n), rows `stride` apart
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t n;
};
void dots(const DotRows& input, float factor, float* out);

// exp(x) within 2 units in the last place for x in [-87, 88]; exactly 0 below -87.5 (also for
// -infinity), very large or infinite above 88; NaN stays NaN.
void exponential(float* x, std::int64_t count);

// The softmax over a row that comes in pieces: the highest score so far, and the sum of
// exp(score - highest).
struct RunningSoftmax {
  float highest;
  float sum;
};

// pattern = softmax(scores)
void softmax(const float* scores, std::int64_t count, float* pattern);

// y = x / sqrt(mean(x²) + eps) * weight, for each of `rows` rows of n.
struct NormRows {
  const float* x;
  const float* weight;  // (n)
  std::int64_t rows;
  std::int64_t n;
  float eps;
};
void rms_norm(const NormRows& input, float* y);

// y = (x - mean) / sqrt(mean((x - mean)²) + eps) * weight + bias, for each row; no bias where it is
// null.
void layer_norm(const NormRows& input, const float* bias, float* y);

// out = (clip(up) + 1) * g sigmoid(alpha g) with g = min(gate, limit), see ClampedSwiglu
void clamped_gate(const ClampedSwiglu& swiglu, const float* gate, const float* up,
                  std::int64_t count, float* out);

// out = activation(gate) * up; not for xIELU, which has no gate, nor for the clamped one
void gate(Activation activation, const float* gate, const float* up, std::int64_t count,
          float* out);

// x = activation(x)
void activate(Activation activation, const XieluWeights& xielu, float* x, std::int64_t count);

void clip(float* x, std::int64_t count, float limit);  // x = min(max(x, -limit), limit)

void soft_cap(float* x, std::int64_t count, float cap);  // x = cap tanh(x / cap)

// cos and sin of position * inverse[i], the angle rounded to float32, each times `factor`.
void angles(float position, const float* inverse, std::int64_t count, float factor, float* cos,
            float* sin);

// Turns pair i of x by the angle of cos[i] and sin[i]: pairs are (x[i], x[i + half]), or
// (x[2i], x[2i + 1]) when interleaved.
void turn(float* x, const float* cos, const float* sin, std::int64_t half, bool interleaved);

}  // namespace qkscope::rows
