// Loops over arrays of numbers. Sums are sixteen running sums, added in a fixed order: the same
// bytes on every CPU with fused multiply-adds.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

double sum(std::span<const double> x);
double dot(std::span<const double> x, std::span<const double> y);
double dot(std::span<const float> x, std::span<const double> y);
// out[i] = row i of rows (count, cols of y) . y
void dots(const double* rows, std::int64_t count, std::span<const double> y, double* out);
void dots(const float* rows, std::int64_t count, std::span<const double> y, double* out);
double norm(std::span<const double> x);

// Sums of x - centre, its square, third and fourth power.
struct PowerSums {
  double first = 0;
  double second = 0;
  double third = 0;
  double fourth = 0;
};
PowerSums powers_around(std::span<const double> x, double centre);

// y += factor x.
void add_scaled(double factor, std::span<const double> x, std::span<double> y);
// The whole part of (x - low) scale, up to a rounding of x, held in [0, last]. Never descends with
// x.
void bins_of(std::span<const double> x, double low, double scale, std::uint16_t last,
             std::uint16_t* bin);
// For a sample and a distribution function at the edges of bins, before (bins + 1): the values
// below each edge. bound (bins, a multiple of 16): how far the two may be apart inside each bin.
// Returns how far they are at the edges.
float distance_bounds(std::span<const std::int32_t> before, std::span<const float> cdf,
                      std::span<float> bound);

// sum (cols) += every row of rows (count, cols).
void add_rows(const float* rows, std::int64_t count, std::span<double> sum);
// out (count, cols) = rows (count, cols) - mean (cols), in float64.
void centre_rows(const float* rows, std::int64_t count, std::span<const double> mean, double* out);

}  // namespace qkscope
