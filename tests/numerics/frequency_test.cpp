#include <cmath>
#include <complex>
#include <numbers>

#include <gtest/gtest.h>

#include "numerics/fft.h"
#include "numerics/frequency_search.h"
#include "numerics/phase_table.h"
#include "numerics/random.h"
#include "numerics/spectrum.h"
#include "numerics/step_maximum.h"
#include "sanitized.h"

namespace qkscope {
namespace {

TEST(Fft, AgreesWithTheSum) {
  for (const std::size_t size : {64u, 128u, 256u, 512u, 1024u, 2048u}) {
    Random random(size);
    std::vector<FourComplex> signal(size);
    std::vector<std::complex<double>> values[4];
    for (auto& point : signal)
      for (int lane = 0; lane < 4; ++lane) {
        point.re[lane] = static_cast<float>(random.normal());
        point.im[lane] = static_cast<float>(random.normal());
        values[lane].emplace_back(point.re[lane], point.im[lane]);
      }
    const auto fft = Fft::of_size(size);
    fft->forward(signal);
    for (std::size_t k = 0; k < size; k += size / 64 + 1)
      for (int lane = 0; lane < 4; ++lane) {
        std::complex<double> sum;
        for (std::size_t n = 0; n < size; ++n)
          sum += values[lane][n] *
                 std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k * n % size) /
                                     static_cast<double>(size));
        // Single precision over eleven levels.
        const auto& found = signal[fft->place(k)];
        EXPECT_NEAR(found.re[lane], sum.real(), 1e-5 * static_cast<double>(size));
        EXPECT_NEAR(found.im[lane], sum.imag(), 1e-5 * static_cast<double>(size));
      }
  }
}

TEST(PhaseTable, AgreesWithTheLibrary) {
  const PhaseTable phase(0.7312345, 131072);
  for (const std::int64_t t : {0, 1, 255, 256, 1000, 65535, 131071}) {
    EXPECT_NEAR(phase[t].real(), std::cos(0.7312345 * static_cast<double>(t)), 2e-11);
    EXPECT_NEAR(phase[t].imag(), -std::sin(0.7312345 * static_cast<double>(t)), 2e-11);
  }
}

// Up to the highest frequency asked for the grid holds the sums, to what the kernel promises.
TEST(Spectrum, AgreesWithTheSums) {
  for (const double highest : {0.3, 1.0, 2.0, 3.1}) {
    Random random(7);
    std::vector<std::int32_t> offsets;
    std::vector<FourValues> values(500);
    for (auto& value : values) {
      offsets.push_back(static_cast<std::int32_t>(random.below(3000)));
      for (int lane = 0; lane < 4; ++lane) {
        value.re[lane] = random.normal();
        value.im[lane] = random.normal();
      }
    }
    Spectrum spectrum(offsets, 3000, highest);
    spectrum.compute(values);
    const double size = std::sqrt(2.0 * static_cast<double>(values.size()));  // of a typical sum
    const auto last = static_cast<std::int64_t>(highest / spectrum.step());
    for (std::int64_t k = -last; k <= last; k += 37) {
      std::complex<double> sum;
      const double omega = static_cast<double>(k) * spectrum.step();
      for (std::size_t i = 0; i < values.size(); ++i)
        sum += std::complex<double>(values[i].re[1], values[i].im[1]) *
               std::polar(1.0, -omega * (offsets[i] - spectrum.origin()));
      EXPECT_LT(std::abs(spectrum.at(k, 1) - sum), 5e-3 * size) << highest << " " << k;
    }
  }
}

// The strongest rotation of one signal, given in the order of its positions. It is the third of
// four; the others turn at other speeds and must not matter.
RotationPeak strongest_rotation(FrequencySearch& search, const std::vector<double>& cosine,
                                const std::vector<double>& sine) {
  std::vector<FourValues> units(cosine.size());
  for (std::size_t i = 0; i < cosine.size(); ++i) {
    FourValues& unit = units[search.order().places()[i]];
    for (int lane = 0; lane < 4; ++lane) {
      const double angle = 0.1 * lane * static_cast<double>(i);
      unit.re[lane] = lane == 2 ? cosine[i] : std::cos(angle);
      unit.im[lane] = lane == 2 ? sine[i] : std::sin(angle);
    }
  }
  return search.strongest_rotations(units)[2];
}

double strength_at(double omega, const std::vector<std::int32_t>& t,
                   const std::vector<double>& angle) {
  std::complex<double> sum;
  for (std::size_t i = 0; i < t.size(); ++i) sum += std::polar(1.0, angle[i] - omega * t[i]);
  return std::abs(sum) / static_cast<double>(t.size());
}

// Noise of many shapes: the search must never find less than a very dense grid does.
TEST(FrequencySearch, NeverMissesThePeak) {
  const int rounds = kSanitized ? 10 : 100;
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<std::uint64_t>(round) + 17);
    const auto length = static_cast<std::int32_t>(40 + random.below(800));
    const auto rows = 20 + random.below(150);
    std::vector<std::int32_t> t;
    std::vector<double> angle;
    std::vector<double> cosine;
    std::vector<double> sine;
    const double planted = random.uniform();
    const double order = round % 3 == 0 ? 0 : 0.5 * random.uniform();
    for (std::uint64_t i = 0; i < rows; ++i) {
      t.push_back(7 + static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(length))));
      const bool turning = random.uniform() < order;
      angle.push_back(turning ? planted * t.back() : 2 * std::numbers::pi * random.uniform());
      cosine.push_back(std::cos(angle.back()));
      sine.push_back((round % 2 == 0 ? 1 : -1) * std::sin(angle.back()));
    }
    const FrequencyBand band{round % 4 == 0 ? 0.01 : 0.0, round % 5 == 0 ? 2.0 : 1.0};
    FrequencySearch search(t, band);
    const auto peak = strongest_rotation(search, cosine, sine);
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

TEST(FrequencySearch, FindsASlowAndAFastTurnExactly) {
  for (const double omega : {3e-5, 1e-3, 0.0312, 0.99}) {
    std::vector<std::int32_t> t;
    std::vector<double> cosine;
    std::vector<double> sine;
    Random random(3);
    for (int i = 0; i < 4000; ++i) {
      t.push_back(static_cast<std::int32_t>(random.below(131072)));
      cosine.push_back(std::cos(omega * t.back() + 1));
      sine.push_back(-std::sin(omega * t.back() + 1));
    }
    FrequencySearch search(t, {0, 1});
    const auto peak = strongest_rotation(search, cosine, sine);
    EXPECT_NEAR(peak.strength, 1, 1e-12);
    EXPECT_NEAR(peak.omega, omega, 1e-11);
    EXPECT_TRUE(peak.reversed);
    const auto wave = search.best_sinusoid(cosine);
    EXPECT_NEAR(wave.r_squared, 1, 1e-9);
    EXPECT_NEAR(wave.omega, omega, 1e-9);
  }
}

TEST(BestSplit, AgreesWithTryingEveryThreshold) {
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
    lower.resize(40 + random.below(50));
    double best = 0;
    for (const auto* thresholds : {&upper, &lower})
      for (const double c : *thresholds) {
        double above = 0;
        double wrong = 0;
        for (const double x : upper) above += x > c ? 1.0 / static_cast<double>(upper.size()) : 0;
        for (const double x : lower) wrong += x > c ? 1.0 / static_cast<double>(lower.size()) : 0;
        best = std::max(best, above - wrong);
      }
    EXPECT_NEAR(best_split(upper, lower), best, 1e-12) << round;
  }
}

}  // namespace
}  // namespace qkscope
