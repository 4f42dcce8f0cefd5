// Level-1 operations on arrays. Sums use 16 partial sums that are combined in a fixed order, so all
// targets with fused multiply-adds produce identical bytes.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

double sum(std::span<const double> x);
double dot(std::span<const double> x, std::span<const double> y);
double dot(std::span<const float> x, std::span<const double> y);
// Matrix-vector product: out (count) = rows (count, cols) times y (cols).
void row_dot_products(const double* rows, std::int64_t count, std::span<const double> y,
                      double* out);
void row_dot_products(const float* rows, std::int64_t count, std::span<const double> y,
                      double* out);
double norm(std::span<const double> x);

// Sums of the first four powers of x - centre.
struct PowerSums {
  double first = 0;
  double second = 0;
  double third = 0;
  double fourth = 0;
};
PowerSums central_power_sums(std::span<const double> x, double centre);

// y += factor x.
void add_scaled(double factor, std::span<const double> x, std::span<double> y);

// Input row of compute_weighted_sums(): sums (3, cols) of weight x, of moment x and of weight x^2.
struct WeightedRow {
  const float* x;  // (cols)
  double weight;
  double moment;
};
void compute_weighted_sums(std::span<const WeightedRow> rows, std::int64_t cols, double* sums);

// Adds the column sums of rows (count, cols) to sum (cols).
void add_column_sums(const float* rows, std::int64_t count, std::span<double> sum);
// Centres rows: out (count, cols) = rows (count, cols) - mean (cols), in float64.
void centre_rows(const float* rows, std::int64_t count, std::span<const double> mean, double* out);

}  // namespace qkscope
