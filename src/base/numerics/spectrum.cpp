#include "base/numerics/spectrum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/core/made_once.h"
#include "base/numerics/spectrum_kernels.h"

namespace qkscope {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr std::int64_t kPoints = 5;  // of the grid, for every `tokens` positions
constexpr std::int64_t kMargin = 4;  // blocks

// A bell exp(b (sqrt(1 - x^2) - 1)) over [-1, 1]: nearly the best a kernel of its width can do.
double bell(double sharpness, double x) {
  return std::fabs(x) < 1 ? std::exp(sharpness * (std::sqrt(1 - x * x) - 1)) : 0;
}

// Of the spreading kernel; chosen for frequencies up to 2.82 radians per point.
constexpr double kSharpness = 13.25;
constexpr double kHighest = 2.82;
constexpr double kReach = 4;  // points

double kernel(double distance) {
  return bell(kSharpness, distance / kReach);
}

std::int64_t tokens_for(double highest, std::int64_t length) {
  constexpr double kMost = 64;
  if (length <= 64) return kPoints;
  const double tokens = std::min(kMost, static_cast<double>(kPoints) * kHighest / highest);
  return std::max(kPoints, static_cast<std::int64_t>(tokens));
}

std::size_t size_for(double points) {
  return std::bit_ceil(static_cast<std::size_t>(std::max(128.0, 1.4 * points)));
}

// The kernel's transform at `angle` radians per point, from its values at every half point.
double response(double angle) {
  const auto& values = made_once([] {
    std::array<double, 8> half_points;
    for (std::size_t n = 0; n < half_points.size(); ++n)
      half_points[n] = kernel(0.5 * static_cast<double>(n));
    return half_points;
  });
  const double c = std::cos(0.5 * angle);
  double before = 1;
  double cosine = c;
  double sum = 0.5 * values[0];
  for (std::size_t n = 1; n < values.size(); ++n) {
    sum += values[n] * cosine;
    before = std::exchange(cosine, 2 * c * cosine - before);
  }
  return sum;
}

// A sinc under a bell that ends `side` points away.
double interpolation_weight(double x, int side, double sharpness) {
  return std::sin(kPi * x) / (kPi * x) * bell(sharpness, x / side);
}

// Weights of the 16 points around a place a quarter, a half or three quarters past a point.
// With 1.4 points per resolution cell the error is 2e-3.
constexpr int kSide = 8;
using Weights = std::array<std::array<double, 2 * kSide>, 4>;

const Weights& interpolation() {
  const auto& weights = made_once([] {
    Weights table{};
    for (std::size_t quarter = 1; quarter < 4; ++quarter)
      for (std::size_t j = 0; j < 2 * kSide; ++j)
        table[quarter][j] = interpolation_weight(
            0.25 * static_cast<double>(quarter) + (kSide - 1) - static_cast<double>(j), kSide, 7.2);
    return table;
  });
  return weights;
}

// Of the eight points around a place halfway between two, in single precision.
const float* halfway_weights() {
  const auto& weights = made_once([] {
    std::array<float, 8> taps;
    for (std::size_t j = 0; j < taps.size(); ++j)
      taps[j] = static_cast<float>(interpolation_weight(3.5 - static_cast<double>(j), 4, 3.6));
    return taps;
  });
  return weights.data();
}

}  // namespace

SpectrumTables::SpectrumTables(std::size_t size, std::int64_t tokens, FrequencyBand band)
    : fft(Fft::of_size(size)),
      step(2 * kPi * kPoints / static_cast<double>(tokens * static_cast<std::int64_t>(size))),
      first(static_cast<std::int64_t>(std::floor(2 * band.low / step))),
      last(static_cast<std::int64_t>(std::ceil(2 * band.high / step))),
      inner{first / 2 + 2, last / 2 - 1},
      gain(size / 2 + 1, 1.0F) {
  add_taps(tokens);
  if (tokens > kPoints) set_gains(band.high);
  share_gains();
  add_places();
}

std::shared_ptr<const SpectrumTables> SpectrumTables::of(std::size_t size, std::int64_t tokens,
                                                         FrequencyBand band) {
  static std::mutex mutex;
  static std::map<std::tuple<std::size_t, std::int64_t, double, double>,
                  std::shared_ptr<const SpectrumTables>>
      made;
  const std::lock_guard lock(mutex);
  auto& slot = made[{size, tokens, band.low, band.high}];
  if (!slot) slot = std::make_shared<const SpectrumTables>(size, tokens, band);
  return slot;
}

void SpectrumTables::add_taps(std::int64_t tokens) {
  for (std::int64_t phase = 0; phase < tokens; ++phase)
    for (std::int64_t start = 0; start < 4; ++start)
      for (std::int64_t i = 0; i < 12; ++i) {
        const auto m = i - start;
        const double distance =
            static_cast<double>(m - 3) - static_cast<double>(phase) / static_cast<double>(tokens);
        const double tap = tokens > kPoints ? kernel(distance) : (m == 3 ? 1 : 0);
        if (i % 4 == 0) taps.emplace_back();
        taps.back()[i % 4] = m >= 0 && m < 8 ? static_cast<float>(tap) : 0.0F;
      }
}

void SpectrumTables::set_gains(double highest) {
  const auto end = static_cast<std::int64_t>(highest / step) + 2 * kSide;  // and a few beyond
  for (std::int64_t k = 0; k <= std::min(end, std::ssize(gain) - 1); ++k) {
    const double angle = 2 * kPi * static_cast<double>(k) / static_cast<double>(fft->size());
    gain[static_cast<std::size_t>(k)] = static_cast<float>(1 / response(angle));
  }
}

// Gains for many points at once, and 0 where some of them are not inside the band.
void SpectrumTables::share_gains() {
  constexpr std::size_t kLines = 128;
  const auto size = static_cast<std::int64_t>(fft->size());
  const auto blocks = static_cast<std::int64_t>(fft->blocks());
  shift = std::max(0, std::countr_zero(fft->blocks()) - std::countr_zero(kLines));
  const std::int64_t together = std::int64_t{1} << shift;
  const GridStretch negative{size - inner.end + 1, size - inner.begin + 1};
  const auto shared = [&](std::int64_t begin) {
    const auto within = [&](const GridStretch& all) {
      return !is_small() && begin >= all.begin && begin + together <= all.end;
    };
    const auto middle = begin + together / 2;
    const auto one = gain[static_cast<std::size_t>(std::min(middle, size - middle))];
    return within(inner) || within(negative) ? one * one : 0.0F;
  };
  for (std::int64_t block = 0; block <= blocks; block += together)
    for (std::int64_t number = 0; number < 16; ++number) {
      if (number % 4 == 0) shared_gain.emplace_back();
      shared_gain.back()[number % 4] = shared((block + number * blocks) % size);
    }
  const GridStretch all{first / 2, last / 2 + 2};
  add_edges(all, inner);
  add_edges({size - all.end + 1, size - all.begin + 1}, negative);
}

// What shared gains leave out of a stretch, and a point before it.
void SpectrumTables::add_edges(GridStretch all, GridStretch inside) {
  const std::int64_t together = std::int64_t{1} << shift;
  const GridStretch whole{(inside.begin + together - 1) / together * together,
                          inside.end / together * together};
  if (is_small() || whole.begin >= whole.end) {
    edges.push_back(all);
    return;
  }
  edges.push_back({all.begin, whole.begin});
  edges.push_back({whole.end - 1, all.end});
}

void SpectrumTables::add_places() {
  const auto blocks = static_cast<std::int64_t>(fft->blocks());
  for (std::int64_t block = -kMargin; block < blocks + kMargin; ++block) {
    const bool within = block >= 0 && block < blocks;
    const auto margin = blocks + (block < 0 ? block + kMargin : block - blocks + kMargin);
    const auto place =
        within ? fft->place(static_cast<std::size_t>(block)) : static_cast<std::size_t>(margin);
    places.push_back(static_cast<std::uint32_t>(4 * place));
  }
}

Spectrum::Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, FrequencyBand band)
    : tokens_(tokens_for(band.high, length)),
      tables_(SpectrumTables::of(size_for(static_cast<double>(length) / tokens_per_point()),
                                 tokens_, band)),
      middle_(length / 2 * kPoints / tokens_),
      signal_(fft().size() / 4 + 4 * 2 * kMargin),
      largest_(4 * (fft().blocks() + 1)) {
  rows_.reserve(offsets.size());
  const auto tokens = static_cast<std::uint32_t>(tokens_);
  for (const auto offset : offsets) {
    const auto fine = static_cast<std::uint32_t>(offset * kPoints);
    const auto start = index(fine / tokens - 3 - middle_);
    rows_.push_back({static_cast<std::uint32_t>(start / 4),
                     static_cast<std::uint32_t>((fine % tokens * 4 + start % 4) * 3)});
  }
}

double Spectrum::tokens_per_point() const {
  return static_cast<double>(tokens_) / kPoints;
}

void Spectrum::spread(std::span<const std::complex<double>> values) {
  std::memset(signal_.data(), 0, std::span(signal_).size_bytes());
  spread_values(values, rows_.data(), tables_->taps.data(), signal_.data());
  // What reaches past the end belongs to the beginning.
  for (std::size_t v = 0; v < 3; ++v) {
    const FourComplex& past = signal_[fft().size() / 4 + v];
    signal_[v].re += past.re;
    signal_[v].im += past.im;
  }
}

void Spectrum::compute(std::span<const std::complex<double>> values) {
  spread(values);
  const SharedGains gains{tables_->shared_gain.data(), tables_->shift};
  highest_ = 0;
  fft().forward(
      std::span(signal_).first(fft().size() / 4), [&](std::size_t begin, std::size_t end) {
        const auto rests = fft().rests().subspan(begin, end - begin);
        highest_ = std::max(
            highest_, largest_powers(signal_.data() + 4 * begin, rests, gains, largest_.data()));
      });
  copy_margins();
  // Behind the last block comes the first, a point further on: of this vector or the next.
  for (std::size_t v = 0; v < 4; ++v)
    largest_[4 * fft().blocks() + v] = std::max(largest_[v], largest_[(v + 1) % 4]);
  edge_powers_.clear();
  for (const auto& edge : tables_->edges)
    for (std::int64_t k = edge.begin; k <= edge.end; ++k) {
      edge_powers_.push_back(static_cast<float>(power(2 * k)));
      if (k < edge.end && inside(signed_index(k)))
        highest_ = std::max(highest_, edge_powers_.back());
    }
}

// Blocks before the first and behind the last, for those who look at neighbours.
void Spectrum::copy_margins() {
  const auto blocks = static_cast<std::int64_t>(fft().blocks());
  const auto copy = [&](std::int64_t block) {
    FourComplex* const to =
        signal_.data() + tables_->places[static_cast<std::size_t>(block + kMargin)];
    for (std::int64_t number = 0; number < 16; ++number) {
      const auto value = raw(block + number * blocks);
      to[number / 4].re[number % 4] = value.real();
      to[number / 4].im[number % 4] = value.imag();
    }
  };
  for (std::int64_t block = 0; block < kMargin; ++block) {
    copy(block - kMargin);
    copy(blocks + block);
  }
}

double Spectrum::power(std::int64_t half) const {
  const auto k = half >> 1;
  if ((half & 1) == 0) return std::norm(at(k));
  std::complex<double> sum;
  for (int j = 0; j < 8; ++j) sum += static_cast<double>(halfway_weights()[j]) * at(k + j - 3);
  return std::norm(sum);
}

// As high_powers(), for points that do not share their gains.
void Spectrum::find_between(GridStretch stretch, std::span<const float> powers, float least,
                            float near, std::vector<HighPoint>& found) const {
  const auto add = [&](std::int64_t half, float here) {
    if (here > least) found.push_back({half, here});
  };
  for (std::int64_t k = stretch.begin; k < stretch.end; ++k) {
    const auto at = static_cast<std::size_t>(k - stretch.begin);
    if (!(std::max(powers[at], powers[at + 1]) > near)) continue;
    add(2 * k, powers[at]);
    add(2 * k + 1, static_cast<float>(power(2 * k + 1)));
  }
}

void Spectrum::find_above(float least, float near, std::vector<HighPoint>& found) const {
  const GridBlocks grid{signal_.data(),
                        tables_->places.data() + kMargin,
                        static_cast<std::int64_t>(fft().blocks()),
                        {tables_->shared_gain.data(), tables_->shift}};
  high_powers(grid, largest_.data(), {least, near, halfway_weights()}, found);
  std::span<const float> powers = edge_powers_;
  for (const auto& edge : tables_->edges) {
    find_between(edge, powers, least, near, found);
    powers = powers.subspan(static_cast<std::size_t>(edge.end - edge.begin + 1));
  }
}

std::array<double, 5> Spectrum::quarters(std::int64_t half) const {
  // Points k - kSide .. k + kSide + 1, the first at or before the half point.
  const std::int64_t k = half >> 1;
  std::array<std::complex<double>, 2 * kSide + 2> points;
  for (int j = 0; j < std::ssize(points); ++j)
    points[static_cast<std::size_t>(j)] = at(k + j - kSide);
  const auto between = [&](int quarter) {  // quarters of a step after k
    const auto first = static_cast<std::size_t>(quarter < 0 ? 0 : 1);
    const auto& weights = interpolation()[static_cast<std::size_t>((quarter + 4) % 4)];
    std::complex<double> sum;
    for (std::size_t j = 0; j < 2 * kSide; ++j) sum += weights[j] * points[first + j];
    return std::norm(sum);
  };
  const double here = std::norm(points[kSide]);
  if ((half & 1) == 0) return {between(-2), between(-1), here, between(1), between(2)};
  return {here, between(1), between(2), between(3), std::norm(points[kSide + 1])};
}

}  // namespace qkscope
