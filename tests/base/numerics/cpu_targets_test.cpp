// Kernels under every SIMD target: exact chains of fused multiply-adds and identical bytes.
#include "cpu_targets.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>

#include <gtest/gtest.h>

#include "base/numerics/matrix.h"
#include "base/numerics/normal.h"
#include "base/numerics/nufft.h"
#include "base/numerics/phase_sums.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// Numbers in [-1, 1) that do not depend on the math library.
std::vector<double> numbers(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> x(count);
  for (double& value : x) value = static_cast<double>(random.next_below(1 << 30)) / (1 << 29) - 1;
  return x;
}

Matrix matrix_of(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix matrix(rows, cols);
  const auto x = numbers(matrix.data.size(), seed);
  std::copy(x.begin(), x.end(), matrix.data.begin());
  return matrix;
}

std::vector<float> narrow(std::span<const double> x) {
  return {x.begin(), x.end()};
}

// FNV-1a hash of the bytes of numbers.
class Digest {
 public:
  template <typename Number>
  void add(std::span<const Number> values) {
    for (const auto& value : values) {
      unsigned char bytes[sizeof value];
      std::memcpy(bytes, &value, sizeof value);
      for (const auto byte : bytes) value_ = (value_ ^ byte) * 0x100000001b3ULL;
    }
  }
  void add(double value) { add(std::span<const double>(&value, 1)); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

std::uint64_t digest_of_kernels() {
  Digest digest;
  for (const std::int64_t rows : {1, 7, 29}) {
    digest.add<double>(multiply(matrix_of(rows, 130, 1), matrix_of(130, 19, 2)).data);
    const Matrix x = matrix_of(5 * rows, 37, 3);
    Matrix gram(37, 37);
    add_gram(x.data.data(), x.rows, gram);
    mirror_upper_triangle(gram);
    digest.add<double>(gram.data);
    const auto floats = narrow(x.data);
    std::vector<float> product(static_cast<std::size_t>(5 * (rows % 19) + kFewColumnsPadding));
    multiply_few_columns(floats.data(), 5, 37, narrow(matrix_of(37, 35, 6).data).data(), 35,
                         rows % 19, product.data());
    digest.add<float>(std::span(product).first(product.size() - kFewColumnsPadding));
    const auto mean = numbers(37, 7);
    const auto weight = numbers(3, 8);
    const std::int64_t some[] = {4, 0, 2};
    std::vector<double> weighted(37);
    const WeightedRowSum sums[] = {{weight, weighted}};
    add_centred_gram_and_sums(floats.data(), some, mean, gram, sums);
    mirror_upper_triangle(gram);
    digest.add<double>(gram.data);
    digest.add<double>(weighted);
    std::vector<double> along(static_cast<std::size_t>(x.rows));
    compute_row_dots(floats.data(), x.rows, mean, along.data());
    digest.add<double>(along);
  }
  for (const std::size_t count : {1U, 15U, 16U, 1003U}) {
    const auto x = numbers(count, 4);
    auto y = numbers(count, 5);
    digest.add(sum(x));
    digest.add(dot(x, y));
    digest.add(dot(narrow(x), y));
    const auto powers = central_power_sums(x, 0.1);
    digest.add(powers.second);
    digest.add(powers.third);
    digest.add(powers.fourth);
    add_scaled(0.3, x, y);
    add_column_sums(narrow(x).data(), 1, y);
    digest.add<double>(y);
    for (double& value : y) value = (value - 0.2) * 1.7;
    std::vector<double> centred(count);
    centre_rows(narrow(x).data(), 1, y, centred.data());
    digest.add<double>(centred);
    for (double& z : y) z = std::fabs(8 * z * (1 / std::numbers::sqrt2));
    erfc_in_place(y);
    for (double& e : y) e *= 2 - e;
    digest.add<double>(y);
  }
  return digest.value();
}

// Hash of the Fourier kernels, whose tables depend on sin() and cos() of the math library.
std::uint64_t digest_of_fourier_kernels() {
  Digest digest;
  for (const std::size_t size : {128U, 512U, 4096U}) {
    const auto x = narrow(numbers(2 * size, 6));
    std::vector<FourComplex> signal(size / 4);
    std::memcpy(signal.data(), x.data(), x.size() * sizeof(float));
    Fft::find_or_make_cached(size)->transform_in_place(signal);
    digest.add<FourComplex>(signal);
  }
  std::vector<std::int32_t> positions(700);
  for (std::size_t i = 0; i < positions.size(); ++i)
    positions[i] = 3 * static_cast<std::int32_t>(i);
  const SortedPositions order(positions);
  const auto parts = numbers(2 * 700, 8);
  std::vector<std::complex<double>> signal;
  for (std::size_t i = 0; i < 700; ++i) signal.emplace_back(parts[2 * i], parts[2 * i + 1]);
  Nufft spectrum(order.offsets(), order.position_extent(), {0, 1});
  spectrum.compute_spectrum(signal);
  for (std::int64_t half = 0; half < 50; ++half) digest.add(spectrum.power_at_half_step(half));
  std::vector<PeakCandidate> found;
  spectrum.find_peaks_above(0.5F * spectrum.max_power_in_band(),
                            0.4F * spectrum.max_power_in_band(), found);
  for (const auto& [half, power] : found) {
    digest.add(static_cast<double>(half));
    digest.add(power);
  }
  for (const auto& sum : fourier_sum_taylor_series(0.37, order, signal).sum) {
    digest.add(sum.real());
    digest.add(sum.imag());
  }
  return digest.value();
}

TEST(CpuTargets, ProductsAreOneChainOfFusedMultiplyAdds) {
  const Matrix left = matrix_of(31, 67, 1);
  const Matrix right = matrix_of(67, 13, 2);
  for_each_cpu_target([&](const std::string& target) {
    if (!cpu_target_has_fma(target)) return;
    const Matrix product = multiply(left, right);
    for (std::int64_t i = 0; i < product.rows; ++i)
      for (std::int64_t j = 0; j < product.cols; ++j) {
        double chain = 0;
        for (std::int64_t k = 0; k < left.cols; ++k)
          chain = std::fma(left(i, k), right(k, j), chain);
        ASSERT_EQ(product(i, j), chain) << i << ' ' << j;
      }
  });
}

TEST(CpuTargets, KernelsGiveTheSameBytesOnEveryCpu) {
  for_each_cpu_target([](const std::string& target) {
    if (!cpu_target_has_fma(target)) return;
    EXPECT_EQ(digest_of_kernels(), 18105846977759417413U);
  });
}

TEST(CpuTargets, FourierKernelsGiveTheSameBytesUnderEveryTarget) {
  std::vector<std::uint64_t> digests;
  for_each_cpu_target([&](const std::string& target) {
    if (cpu_target_has_fma(target)) digests.push_back(digest_of_fourier_kernels());
  });
  for (const auto digest : digests) EXPECT_EQ(digest, digests.front());
}

// A target without fused multiply-adds rounds once more per term.
TEST(CpuTargets, TargetsWithoutFusedMultiplyAddsDifferByRoundingOnly) {
  const auto x = numbers(1003, 1);
  const auto y = numbers(1003, 2);
  const double exact = [&] {
    long double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<long double>(x[i]) * y[i];
    return static_cast<double>(sum);
  }();
  for_each_cpu_target([&](const std::string&) {
    EXPECT_NEAR(dot(x, y), exact, 1e-13);
    auto z = numbers(1003, 3);
    for (double& value : z) value = std::fabs(20 * value);
    const auto before = z;
    erfc_in_place(z);
    for (std::size_t i = 0; i < z.size(); ++i)
      EXPECT_NEAR(z[i], std::erfc(before[i]), 2e-15 * z[i]) << before[i];
  });
}

TEST(CpuTargets, WeightedSumsMatchPlainLoops) {
  for_each_cpu_target([&](const std::string&) {
    for (const std::size_t cols : {1, 7, 8, 21}) {
      std::vector<float> x;
      for (std::size_t i = 0; i < 5 * cols; ++i)
        x.push_back(std::sin(0.7F * static_cast<float>(i)));
      std::vector<WeightedRow> rows;
      for (std::size_t i = 0; i < 5; ++i)
        rows.push_back(
            {x.data() + i * cols, 0.3 + static_cast<double>(i), 1 - 0.4 * static_cast<double>(i)});
      std::vector<double> sums(3 * cols, -1);
      compute_weighted_sums(rows, static_cast<std::int64_t>(cols), sums.data());
      for (std::size_t j = 0; j < cols; ++j) {
        double expected[3] = {};
        for (const auto& row : rows) {
          expected[0] += row.weight * row.x[j];
          expected[1] += row.moment * row.x[j];
          expected[2] += row.weight * row.x[j] * row.x[j];
        }
        for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(sums[k * cols + j], expected[k], 1e-13);
      }
    }
  });
}

// Every number of lanes; lanes that begin and end inside of a line count only there.
TEST(CpuTargets, PlasticityAlongLinesAgreesWithNormalCdf) {
  const std::vector<std::int32_t> column = {3, 3, 3, 3, 3, 4, 4, 5, 5, 5, 6, 6};
  std::vector<float> fraction;
  for (std::size_t i = 0; i < column.size(); ++i)
    fraction.push_back(column[i] == 6 ? 0 : 0.1F * static_cast<float>(i % 5));
  for_each_cpu_target([&](const std::string&) {
    for (std::int64_t lanes = kLaneStep; lanes <= kMostLanes; lanes += kLaneStep)
      for (const auto& [first, end] : {std::pair{0, 12}, {2, 11}, {7, 8}}) {
        std::vector<float> z(static_cast<std::size_t>(4 * lanes));
        for (std::size_t i = 0; i < z.size(); ++i)
          z[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i % 13);
        QueryRangesPerSimdLane points{first, end};
        for (std::int32_t lane = 0; lane < lanes; ++lane) {
          points.lane_first[lane] = std::clamp(lane == 1 ? 3 : 0, first, end);
          points.lane_end[lane] = std::clamp(lane == 2 ? 6 : 12, first, end);
        }
        std::vector<std::uint32_t> running(static_cast<std::size_t>((end - first + 1) * lanes));
        std::vector<std::uint32_t> total(static_cast<std::size_t>(end - first));
        accumulate_plasticity({z.data(), 4, lanes, 3, column.data(), fraction.data()}, points,
                              running.data(), total.data());
        for (auto i = first; i < end; ++i) {
          const auto at = static_cast<std::size_t>(i);
          std::uint32_t sum = 0;
          for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const auto before = static_cast<std::size_t>((i - first) * lanes + lane);
            const auto found = running[before + static_cast<std::size_t>(lanes)] - running[before];
            const auto own = static_cast<std::size_t>((column[at] - 3) * lanes + lane);
            const double next = column[at] == 6 ? z[own] : z[own + static_cast<std::size_t>(lanes)];
            const double p = normal_cdf(-std::fabs(z[own] + fraction[at] * (next - z[own])));
            const bool counts = i >= points.lane_first[lane] && i < points.lane_end[lane];
            // 2e-7 of the polynomial, and rounding in float32.
            EXPECT_NEAR(found * kPlasticityUnit, counts ? 4 * p * (1 - p) : 0, 1e-6);
            sum += found;
          }
          EXPECT_EQ(total[static_cast<std::size_t>(i - first)], sum);
        }
      }
  });
}

TEST(CpuTargets, PlasticityOfLargeZIsZero) {
  const float z[] = {1e4F, -1e4F, 1e20F, 0};
  const std::int32_t column = 0;
  const float fraction = 0;
  QueryRangesPerSimdLane points{0, 1};
  std::fill_n(points.lane_end, kMostLanes, 1);
  for_each_cpu_target([&](const std::string&) {
    std::uint32_t running[8] = {};
    std::uint32_t total = 0;
    accumulate_plasticity({z, 1, 4, 0, &column, &fraction}, points, running, &total);
    EXPECT_EQ(total, 1U << 24);
    EXPECT_EQ(running[7], 1U << 24);
  });
}

}  // namespace
}  // namespace qkscope
