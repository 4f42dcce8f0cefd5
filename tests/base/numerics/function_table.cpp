// Prints values of special functions, one per line, for compare_functions.py.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/numerics/normal.h"
#include "base/numerics/random.h"
#include "base/numerics/sample_statistics.h"

namespace {

using qkscope::Random;

void print_correlations() {
  for (const long n : {3L, 4L, 5L, 10L, 47L, 100L, 1000L, 8000L, 16000L, 1000000L})
    for (const double r :
         {0.0, 1e-9, 1e-3, 0.01, 0.05, 0.1, -0.2, 0.3, 0.5, 0.7, 0.9, 0.99, -0.9999})
      std::printf("pearson,%ld,%.17g,%.17g\n", n, r, qkscope::log_p_value_of_correlation(r, n));
}

void print_chance() {
  for (const long n : {2L, 3L, 4L, 10L, 47L, 1000L, 8000L, 1000000L})
    std::printf("by_chance,%ld,%.17g\n", n, qkscope::expected_abs_r_under_null(n));
  for (const long degrees : {1L, 2L, 3L, 9L, 19L, 100L, 100000L})
    for (const double p : {0.3, 0.05, 0.01, 1e-6})
      std::printf("student,%ld,%.17g,%.17g\n", degrees, p,
                  qkscope::student_t_critical_value(p, degrees));
}

void print_kolmogorov() {
  for (const long n : {1L, 2L, 5L, 10L, 33L, 100L, 140L, 141L, 500L, 1500L, 8000L, 20000L, 100000L})
    for (const double z :
         {0.02, 0.2, 0.4, 0.55, 0.7, 0.86, 0.9, 1.0, 1.2, 1.4, 1.6, 2.0, 2.5, 3.5, 5.0, 8.0, 15.0})
      if (const double d = z / std::sqrt(static_cast<double>(n)); d < 1)
        std::printf("kolmogorov,%ld,%.17g,%.17g\n", n, d, qkscope::kolmogorov_p_value(n, d));
}

void print_normal() {
  for (double z = -37; z <= 8; z += 0.37)
    std::printf("phi,0,%.17g,%.17g\n", z, qkscope::normal_cdf(z));
  std::vector<double> u;
  for (double x = 0; x <= 26.4; x += 0.0173) u.push_back(x);
  auto erfc = u;
  qkscope::erfc_in_place(erfc);
  for (std::size_t i = 0; i < u.size(); ++i) std::printf("erfc,0,%.17g,%.17g\n", u[i], erfc[i]);
  // One pair with z from 0 to 1 between the columns: z is the fraction.
  const float columns[2 * qkscope::kLaneStep] = {0, 0, 0, 0, 1, 1, 1, 1};
  const std::int32_t column = 0;
  for (float z = -9; z <= 9; z += 0.0311F) {
    std::uint32_t running[2 * qkscope::kLaneStep];
    std::uint32_t total = 0;
    qkscope::accumulate_plasticity({columns, 2, qkscope::kLaneStep, 0, &column, &z},
                                   {0, 1, {}, {1, 1, 1, 1}}, running, &total);
    std::printf("plasticity,0,%.17g,%.17g\n", double{z},
                total * qkscope::kPlasticityUnit / qkscope::kLaneStep);
  }
}

// Prints samples of several distributions and their statistics.
void print_normality() {
  for (const int n : {4, 9, 50, 700, 8000})
    for (int shape = 0; shape < 4; ++shape) {
      Random random(static_cast<std::uint64_t>(n * 10 + shape));
      std::vector<double> values;
      for (int i = 0; i < n; ++i) {
        const double x = random.normal();
        values.push_back(shape == 0   ? 3 * x + 1
                         : shape == 1 ? x * x
                         : shape == 2 ? random.uniform()
                                      : (i == 0 ? 1000.0 : std::round(4 * x)));
      }
      std::printf("sample,%d,%d", n, shape);
      for (const double value : values) std::printf(",%.17g", value);
      const auto found = qkscope::measure_normality(values, qkscope::central_power_sums(values, 0));
      std::printf(
          "\nnormality,%.17g,%.17g,%.17g,%.17g\n", found.skew, found.excess_kurtosis, found.ks_p,
          qkscope::kolmogorov_distance_to_normal(values, qkscope::mean_of(values),
                                                 1 / qkscope::standard_deviation_of(values)));
    }
}

}  // namespace

int main() {
  print_correlations();
  print_chance();
  print_kolmogorov();
  print_normal();
  print_normality();
}
