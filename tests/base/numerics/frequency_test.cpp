#include <cmath>
#include <complex>
#include <numbers>
#include <set>

#include <gtest/gtest.h>

#include "base/numerics/frequency_search.h"
#include "base/numerics/nufft.h"
#include "base/numerics/phase_sums.h"
#include "base/numerics/random.h"
#include "base/numerics/reference.h"
#include "base/numerics/sample_statistics.h"
#include "sanitized.h"

namespace qkscope {
namespace {

std::vector<std::int32_t> random_positions(std::size_t count, std::int32_t below, Random& random) {
  std::vector<std::int32_t> positions(count);
  for (auto& position : positions)
    position = static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(below)));
  return positions;
}

TEST(Fft, AgreesWithTheDirectSum) {
  for (const std::size_t size : {128U, 256U, 512U, 1024U, 2048U, 8192U}) {
    Random random(size);
    std::vector<FourComplex> signal(size / 4);
    std::vector<std::complex<double>> values;
    for (auto& point : signal)
      for (int lane = 0; lane < 4; ++lane) {
        point.re[lane] = static_cast<float>(random.normal());
        point.im[lane] = static_cast<float>(random.normal());
        values.emplace_back(float{point.re[lane]}, float{point.im[lane]});
      }
    const auto fft = Fft::find_or_make_cached(size);
    std::size_t done = 0;
    fft->transform_in_place(signal, [&](std::size_t begin, std::size_t end) {
      EXPECT_EQ(begin, done);
      done = end;
    });
    EXPECT_EQ(done, fft->block_count());
    for (std::size_t k = 0; k < size; k += size / 64 + 1) {
      std::complex<double> sum;
      for (std::size_t n = 0; n < size; ++n)
        sum +=
            values[n] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k * n % size) /
                                            static_cast<double>(size));
      // Single precision over 13 radix-2 levels.
      const auto [vector, lane] = fft->simd_index_of_frequency(k);
      EXPECT_NEAR(signal[vector].re[lane], sum.real(), 1e-5 * static_cast<double>(size));
      EXPECT_NEAR(signal[vector].im[lane], sum.imag(), 1e-5 * static_cast<double>(size));
      EXPECT_EQ(fft->block_residues()[fft->block_of_residue(k % fft->block_count())],
                k % fft->block_count());
    }
  }
}

// Where long double is double, the expected angle itself has an error of this size.
constexpr double kPhaseError = sizeof(long double) > sizeof(double) ? 2e-15 : 2e-11;

TEST(PhaseTable, AgreesWithSineAndCosine) {
  const PhaseTable phase(0.7312345, 131072);
  for (const std::int64_t t : {0, 1, 255, 256, 1000, 65535, 131071}) {
    const long double angle = static_cast<long double>(0.7312345) * static_cast<long double>(t);
    EXPECT_NEAR(phase[t].real(), static_cast<double>(std::cos(angle)), kPhaseError);
    EXPECT_NEAR(phase[t].imag(), static_cast<double>(-std::sin(angle)), kPhaseError);
  }
}

std::vector<std::complex<double>> noise(std::size_t count, Random& random) {
  std::vector<std::complex<double>> values(count);
  for (auto& value : values) value = {random.normal(), random.normal()};
  return values;
}

TEST(FourierSumTaylorSeries, AgreesWithDirectSumsWithinItsReach) {
  for (const std::int32_t length : {300, 4096, 131072}) {
    Random random(5);
    const auto positions = random_positions(1000, length, random);
    const SortedPositions order(positions);
    const auto values = noise(positions.size(), random);
    const double omega = 0.37;
    const auto sums = fourier_sum_taylor_series(omega, order, values);
    const double middle = 0.5 * static_cast<double>(order.position_extent() - 1);
    for (const double share : {0.0, 0.2, -1.0, 1.0}) {
      const double move = share * FourierSumTaylorSeries::max_accurate_frequency_shift(order);
      std::complex<long double> sum;
      std::complex<long double> slope;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto t = static_cast<long double>(order.offsets()[i]) - middle;
        const auto turned = std::complex<long double>(values[i]) *
                            std::polar(1.0L, -(static_cast<long double>(omega) + move) * t);
        sum += turned;
        slope += std::complex<long double>(0, -t) * turned;
      }
      const auto found = sums.evaluate(move);
      const auto size = static_cast<double>(values.size());
      EXPECT_NEAR(found.value.real(), static_cast<double>(sum.real()), 1e-13 * size);
      EXPECT_NEAR(found.value.imag(), static_cast<double>(sum.imag()), 1e-13 * size);
      EXPECT_NEAR(found.slope.real(), static_cast<double>(slope.real()), 1e-11 * size * length);
      EXPECT_NEAR(found.slope.imag(), static_cast<double>(slope.imag()), 1e-11 * size * length);
    }
  }
}

TEST(LowFrequencySums, AgreesWithDirectSumsUpTo48Radians) {
  for (const std::int32_t length : {2, 60, 4096, 131072}) {
    Random random(6);
    const SortedPositions order(random_positions(1000, length, random));
    std::vector<double> values(static_cast<std::size_t>(order.row_count()));
    for (double& value : values) value = random.normal();
    const LowFrequencySums slow(order, values);
    const auto span = static_cast<double>(order.position_extent());
    for (const double turned : {0.1, 3.0, 21.0, 48.0}) {
      std::complex<long double> sums[3];
      for (std::size_t i = 0; i < values.size(); ++i) {
        const long double t = order.offsets()[i] - 0.5L * static_cast<long double>(span - 1);
        auto term = static_cast<long double>(values[i]) *
                    std::polar(1.0L, -static_cast<long double>(turned / span) * t);
        for (auto& sum : sums) {
          sum += term;
          term *= std::complex<long double>(0, -t);
        }
      }
      const auto found = slow.evaluate(turned / span);
      // Rounding error of a sum of a thousand numbers of about 1.
      const double near = 1e-13 * static_cast<double>(values.size());
      EXPECT_LT(std::abs(found.value - std::complex<double>(sums[0])), near);
      EXPECT_LT(std::abs(found.slope - std::complex<double>(sums[1])), near * span);
      EXPECT_LT(std::abs(found.curvature - std::complex<double>(sums[2])), near * span * span);
    }
  }
}

// Random lengths, numbers of rows and bands: the error stays below the bound of the ES kernel.
TEST(Nufft, AgreesWithTheReference) {
  for (std::uint64_t round = 0; round < 24; ++round) {
    Random random(round);
    const auto length =
        static_cast<std::int32_t>(2 + random.next_below(round % 3 == 0 ? 60 : 6000));
    const double highest = 0.05 + 3.05 * random.uniform();
    const auto offsets = random_positions(1 + random.next_below(600), length, random);
    const auto values = noise(offsets.size(), random);
    Nufft spectrum(offsets, length, {0, highest});
    spectrum.compute_spectrum(values);
    double energy = 0;
    for (const auto& value : values) energy += std::norm(value);
    const auto last = static_cast<std::int64_t>(highest / spectrum.frequency_step());
    for (std::int64_t k = -last; k <= last; k += 37) {
      const double omega = static_cast<double>(k) * spectrum.frequency_step();
      const auto sum = nufft_reference(offsets, values, omega, spectrum.phase_origin());
      EXPECT_LT(std::abs(spectrum.value_at_grid_point(k) - sum), 5e-3 * std::sqrt(energy))
          << round << " " << k;
    }
  }
}

// On grids with shared and with individual gains: every half grid point clearly above the threshold
// is found, and none clearly below.
TEST(Nufft, FindsAllPointsAboveTheThreshold) {
  for (const std::int32_t length : {70, 3000, 40000})
    for (const FrequencyBand band : {FrequencyBand{0, 1}, FrequencyBand{0.01, 0.5}}) {
      Random random(11);
      const auto offsets = random_positions(400, length, random);
      Nufft spectrum(offsets, length, band);
      spectrum.compute_spectrum(noise(offsets.size(), random));
      std::vector<PeakCandidate> found;
      const float least = 0.5F * spectrum.max_power_in_band();
      spectrum.find_peaks_above(least, 0, found);
      std::set<std::int64_t> halves;
      for (const auto& [half, power] : found) {
        halves.insert(half > spectrum.size() ? half - 2 * spectrum.size() : half);
        EXPECT_NEAR(power, spectrum.power_at_half_step(half), 0.02 * power)
            << length << " " << half;
      }
      for (auto half = spectrum.band_low_in_half_steps();
           half <= spectrum.band_high_in_half_steps(); ++half)
        for (const auto of_either_sign : {half, -half})
          EXPECT_TRUE(halves.contains(of_either_sign) ||
                      spectrum.power_at_half_step(of_either_sign) <= 1.02 * least)
              << length << " " << of_either_sign;
    }
}

// Takes unsorted rows.
RotationFrequencyPeak strongest_rotation_frequency(FrequencySearch& search,
                                                   const std::vector<double>& cosine,
                                                   const std::vector<double>& sine) {
  std::vector<std::complex<double>> units(cosine.size());
  for (std::size_t i = 0; i < cosine.size(); ++i)
    units[search.sorted_positions().row_ranks()[i]] = {cosine[i], sine[i]};
  return search.strongest_rotation_frequency(units);
}

SinusoidFit best_sinusoid(FrequencySearch& search, const std::vector<double>& values) {
  std::vector<double> ordered(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ordered[search.sorted_positions().row_ranks()[i]] = values[i];
  return search.best_sinusoid(ordered);
}

double strength_at(double omega, const std::vector<std::int32_t>& t,
                   const std::vector<double>& angle) {
  std::complex<double> sum;
  for (std::size_t i = 0; i < t.size(); ++i) sum += std::polar(1.0, angle[i] - omega * t[i]);
  return std::abs(sum) / static_cast<double>(t.size());
}

// Noise and planted rotations: the search must find at least the maximum over a very dense grid.
TEST(FrequencySearch, NeverMissesThePeak) {
  const int rounds = kSanitized ? 10 : 100;
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<std::uint64_t>(round) + 17);
    const auto length = static_cast<std::int32_t>(40 + random.next_below(800));
    const auto rows = 20 + random.next_below(150);
    std::vector<std::int32_t> t;
    std::vector<double> angle;
    std::vector<double> cosine;
    std::vector<double> sine;
    const double planted = random.uniform();
    const double order = round % 3 == 0 ? 0 : 0.5 * random.uniform();
    for (std::uint64_t i = 0; i < rows; ++i) {
      t.push_back(7 +
                  static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(length))));
      const bool turning = random.uniform() < order;
      angle.push_back(turning ? planted * t.back() : 2 * std::numbers::pi * random.uniform());
      cosine.push_back(std::cos(angle.back()));
      sine.push_back((round % 2 == 0 ? 1 : -1) * std::sin(angle.back()));
    }
    const FrequencyBand band{round % 4 == 0 ? 0.01 : 0.0, round % 5 == 0 ? 2.0 : 1.0};
    FrequencySearch search(t, band);
    const auto peak = strongest_rotation_frequency(search, cosine, sine);
    double best = 0;
    const double step = 0.1 / length;
    for (double omega = band.low; omega <= band.high; omega += step)
      for (const double sign : {1.0, -1.0})
        best = std::max(best, strength_at((round % 2 == 0 ? 1 : -1) * sign * omega, t, angle));
    EXPECT_GE(peak.strength, best * (1 - 1e-9)) << "round " << round;
    const double sign = (round % 2 == 0 ? 1 : -1) * (peak.reversed ? -1 : 1);
    EXPECT_NEAR(peak.strength, strength_at(sign * peak.omega, t, angle), 1e-9) << "round " << round;
    EXPECT_GE(peak.omega, band.low);
    EXPECT_LE(peak.omega, band.high);
  }
}

TEST(FrequencySearch, RecoversPlantedFrequenciesExactly) {
  for (const double omega : {3e-5, 1e-3, 0.0312, 0.99}) {
    std::vector<std::int32_t> t;
    std::vector<double> cosine;
    std::vector<double> sine;
    Random random(3);
    for (int i = 0; i < 4000; ++i) {
      t.push_back(static_cast<std::int32_t>(random.next_below(131072)));
      cosine.push_back(std::cos(omega * t.back() + 1));
      sine.push_back(-std::sin(omega * t.back() + 1));
    }
    FrequencySearch search(t, {0, 1});
    const auto peak = strongest_rotation_frequency(search, cosine, sine);
    EXPECT_NEAR(peak.strength, 1, 1e-12);
    EXPECT_NEAR(peak.omega, omega, 1e-11);
    EXPECT_TRUE(peak.reversed);
    const auto wave = best_sinusoid(search, cosine);
    EXPECT_NEAR(wave.r_squared, 1, 1e-9);
    EXPECT_NEAR(wave.omega, omega, 1e-9);
  }
}

// R^2 of the least-squares fit c + a cos(omega t) + b sin(omega t), by Gram-Schmidt.
template <typename Real>
Real r_squared(Real omega, const std::vector<std::int32_t>& t, const std::vector<double>& y) {
  const auto n = static_cast<Real>(t.size());
  std::vector<Real> centred[3];
  for (std::size_t i = 0; i < t.size(); ++i) {
    centred[0].push_back(std::cos(omega * static_cast<Real>(t[i])));
    centred[1].push_back(std::sin(omega * static_cast<Real>(t[i])));
    centred[2].push_back(static_cast<Real>(y[i]));
  }
  for (auto& values : centred) {
    Real mean = 0;
    for (const auto value : values) mean += value / n;
    for (auto& value : values) value -= mean;
  }
  const auto dot = [&](int a, int b) {
    Real sum = 0;
    for (std::size_t i = 0; i < t.size(); ++i) sum += centred[a][i] * centred[b][i];
    return sum;
  };
  const auto along = dot(0, 1) / dot(0, 0);
  for (std::size_t i = 0; i < t.size(); ++i) centred[1][i] -= along * centred[0][i];
  return (dot(0, 2) * dot(0, 2) / dot(0, 0) + dot(1, 2) * dot(1, 2) / dot(1, 1)) / dot(2, 2);
}

// A sinusoid, pure noise, a linear drift and a slow curve, all with noise: no frequency of a very
// dense grid, and none next to the result, has a larger R^2.
TEST(LombScargle, FindsTheGlobalMaximum) {
  for (int round = 0; round < (kSanitized ? 4 : 20); ++round) {
    Random random(static_cast<std::uint64_t>(round) + 5);
    const auto length = static_cast<std::int32_t>(60 + random.next_below(500));
    std::vector<std::int32_t> t;
    std::vector<double> y;
    const double omega = random.uniform();
    for (int i = 0; i < 150; ++i) {
      t.push_back(static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(length))));
      const double share = static_cast<double>(t.back()) / length;
      const double wave[] = {std::cos(omega * t.back()), 0.0, 3 * share,
                             std::sin(2 * share) + share};
      y.push_back(wave[round % 4] + random.normal());
    }
    const FrequencyBand band{round % 5 == 0 ? 0.05 : 0.0, 1};
    FrequencySearch search(t, band);
    const auto found = best_sinusoid(search, y);
    const auto span = static_cast<double>(search.sorted_positions().position_extent());
    const double low = std::max(band.low, std::numbers::pi / 4 / span);
    for (double at = low; at <= band.high; at += 0.2 / span)
      EXPECT_GE(found.r_squared, r_squared(at, t, y) * (1 - 1e-10)) << round;
    const auto exact = [&](double at) { return r_squared(static_cast<long double>(at), t, y); };
    const auto top = exact(found.omega);
    EXPECT_NEAR(found.r_squared, static_cast<double>(top), 1e-11) << round;
    for (const double beside : {found.omega - 1e-5 / span, found.omega + 1e-5 / span})
      EXPECT_TRUE(beside < low || beside > band.high || exact(beside) < top) << round;
  }
}

TEST(YoudenJ, AgreesWithTryingEveryThreshold) {
  for (int round = 0; round < 60; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    std::vector<double> upper;
    std::vector<double> lower;
    const double shift = 0.1 * round - 2;
    for (int i = 0; i < 90; ++i) {
      upper.push_back(round % 2 == 0 ? random.normal() + shift
                                     : std::round(random.normal() + shift));
      lower.push_back(round % 2 == 0 ? random.normal() : std::round(random.normal()));
    }
    lower.resize(40 + random.next_below(50));
    double best = 0;
    for (const auto* thresholds : {&upper, &lower})
      for (const double c : *thresholds) {
        double above = 0;
        double wrong = 0;
        for (const double x : upper) above += x > c ? 1.0 / static_cast<double>(upper.size()) : 0;
        for (const double x : lower) wrong += x > c ? 1.0 / static_cast<double>(lower.size()) : 0;
        best = std::max(best, above - wrong);
      }
    EXPECT_NEAR(youden_j(upper, lower), best, 1e-12) << round;
  }
}

}  // namespace
}  // namespace qkscope
