#include "numerics/frequency_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <utility>

#include "numerics/phase_sums.h"

namespace qkscope {
namespace {

// A peak halfway between two half grid points keeps 0.9 of its power on them, and the parabola
// through the three highest reaches 0.98 of it; leave room for noise, which adds to both.
constexpr double kSeen = 0.6;
constexpr double kSeenByParabola = 0.8;
// On the nearer of two whole grid points it keeps 0.64 at least: places between points that are
// both below this share of the highest point need no look.
constexpr double kSeenBeside = 0.4;

bool any(const decltype(FourFloats{} > FourFloats{}) & mask) {
  const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(mask);
  return (halves[0] | halves[1]) != 0;
}

// Calls group(i / 8) for whole groups of eight grid points in [begin, end), point(i) for the rest.
template <typename Group, typename Point>
void walk(std::int64_t begin, std::int64_t end, const Group& group, const Point& point) {
  for (std::int64_t i = begin; i < end;) {
    if (i % 8 == 0 && i + 8 <= end) {
      group(i / 8);
      i += 8;
    } else {
      point(i++);
    }
  }
}

// The top of a parabola through a local maximum and its neighbours.
double parabola_top(double left, double middle, double right) {
  const double bend = left - 2 * middle + right;
  const double slope = 0.5 * (right - left);
  return bend < 0 ? middle - 0.5 * slope * slope / bend : std::max({left, middle, right});
}

struct Candidate {
  double k = 0;  // grid point, with a fraction, in units of the grid step; of either sign
  double power = 0;
};

// The top of the peak next to a half grid point, from quarters of a step around it.
Candidate top_of_peak(const Spectrum& spectrum, std::int64_t half, int signal) {
  const auto power = spectrum.quarters(half, signal);
  const double* const highest = std::max_element(power.data() + 1, power.data() + 4);
  const double bend = highest[-1] - 2 * highest[0] + highest[1];
  const double slope = 0.5 * (highest[1] - highest[-1]);
  const double move = bend < 0 ? std::clamp(-slope / bend, -1.5, 1.5) : 0.0;
  const double quarters = static_cast<double>(highest - power.data() - 2) + move;
  const double top = highest[0] + slope * move + 0.5 * bend * move * move;
  return {0.5 * static_cast<double>(half) + 0.25 * quarters, std::max(top, *highest)};
}

}  // namespace

FrequencySearch::FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band)
    : order_(positions), band_(band), spectrum_(order_.offsets(), order_.length(), band.high) {}

// Newton's method on |S(omega)|^2, held inside one grid step around the start and inside the band.
RotationPeak FrequencySearch::refine_rotation(double start, std::span<const FourValues> units,
                                              int plane) const {
  const double step = spectrum_.step();
  const double sign = start < 0 ? -1 : 1;
  const double low = std::max(band_.low, std::fabs(start) - step);
  const double high = std::min(band_.high, std::fabs(start) + step);
  const auto count = static_cast<double>(order_.rows());
  RotationPeak best{std::clamp(std::fabs(start), low, high), -1, sign < 0};
  double at = best.omega;
  for (int round = 0; round < 20; ++round) {
    const auto [s0, s1, s2] = turned_sums(sign * at, order_, units, plane);
    if (std::abs(s0) / count > best.strength) {
      best.strength = std::abs(s0) / count;
      best.omega = at;
    }
    // d/d(sign omega) S = -i s1, second derivative -s2 (a constant phase does not matter).
    const double slope = 2 * sign * std::imag(std::conj(s0) * s1);
    const double bend = 2 * std::norm(s1) - 2 * std::real(std::conj(s0) * s2);
    const double move = bend < 0 ? -slope / bend : std::copysign(0.25 * step, slope);
    const double next = std::clamp(at + move, low, high);
    if (std::fabs(next - at) < 1e-3 * step && bend < 0 && next == at + move) {
      // So near the top the parabola is exact: the error is of third order in a thousandth.
      best.omega = next;
      best.strength = std::sqrt(std::norm(s0) - 0.5 * slope * slope / bend) / count;
      break;
    }
    if (next == at) break;
    at = next;
  }
  return best;
}

std::array<std::vector<std::int64_t>, 4> FrequencySearch::high_points() const {
  const double step = 0.5 * spectrum_.step();  // of the half grid
  const auto first = static_cast<std::int64_t>(std::floor(band_.low / step));
  const auto last = static_cast<std::int64_t>(std::ceil(band_.high / step));
  const auto size = spectrum_.size();
  // Grid points of both signs, a negative one -k as size - k.
  const auto each_stretch = [&](std::int64_t begin, std::int64_t end, const auto& stretch) {
    stretch(begin, end);
    stretch(size - end + 1, size - begin + 1);
  };
  // Well inside the band.
  const auto inner_begin = first / 2 + 2;
  const auto inner_end = last / 2 - 1;
  FourFloats highest{};
  const auto raise = [&](const FourFloats& power) { highest = power > highest ? power : highest; };
  each_stretch(inner_begin, inner_end, [&](std::int64_t begin, std::int64_t end) {
    walk(
        begin, end, [&](auto group) { raise(spectrum_.group_power(group)); },
        [&](auto k) { raise(spectrum_.power(2 * k)); });
  });
  std::vector<HighPoint> found;
  each_stretch(first / 2, last / 2 + 2, [&](std::int64_t begin, std::int64_t end) {
    spectrum_.find_above(begin, end, static_cast<float>(kSeen) * highest,
                         static_cast<float>(kSeenBeside) * highest, found);
  });
  for (auto& [half, power] : found) {
    if (half > size) half -= 2 * size;
    const auto k = half >> 1;
    const auto inner = k >= 0 ? k : -k;
    if (inner >= inner_begin && inner < inner_end) raise(power);
  }
  const FourFloats enough = static_cast<float>(kSeen) * highest;
  std::array<std::vector<std::int64_t>, 4> points;
  for (const auto& [half, power] : found) {
    if (std::abs(half) < first || std::abs(half) > last || !any(power > enough)) continue;
    const bool edge = std::abs(half) == first || std::abs(half) == last;
    const FourFloats left = spectrum_.power(half - 1);
    const FourFloats right = spectrum_.power(half + 1);
    for (int signal = 0; signal < 4; ++signal) {
      if (!(power[signal] > enough[signal])) continue;
      if (!edge && (power[signal] < left[signal] || power[signal] < right[signal])) continue;
      points[static_cast<std::size_t>(signal)].push_back(half);
    }
  }
  return points;
}

RotationPeak FrequencySearch::strongest_of(std::span<const std::int64_t> points,
                                           std::span<const FourValues> units, int plane) const {
  const double step = spectrum_.step();
  const auto seen = [&](std::int64_t half) {
    return parabola_top(spectrum_.power(half - 1)[plane], spectrum_.power(half)[plane],
                        spectrum_.power(half + 1)[plane]);
  };
  const auto in_band = [&](double k) {
    return std::fabs(k) * step >= band_.low && std::fabs(k) * step <= band_.high;
  };
  double highest = 0;
  for (const auto half : points)
    if (in_band(0.5 * static_cast<double>(half)))
      highest = std::max<double>(highest, spectrum_.power(half)[plane]);
  std::vector<Candidate> candidates;
  double best = 0;
  for (const auto half : points) {
    if (seen(half) < kSeenByParabola * highest) continue;
    candidates.push_back(top_of_peak(spectrum_, half, plane));
    if (in_band(candidates.back().k)) best = std::max(best, candidates.back().power);
  }
  RotationPeak strongest;
  // What spreading and interpolation may have got wrong.
  constexpr double kDoubt = 0.02;
  for (const auto& candidate : candidates) {
    if (candidate.power < (1 - kDoubt) * best) continue;
    const auto peak = refine_rotation(candidate.k * step, units, plane);
    if (peak.strength > strongest.strength) strongest = peak;
  }
  return strongest;
}

std::array<RotationPeak, 4> FrequencySearch::strongest_rotations(std::span<const FourValues> units,
                                                                 int planes) {
  spectrum_.compute(units);
  const auto points = high_points();
  std::array<RotationPeak, 4> peaks;
  for (int plane = 0; plane < planes; ++plane)
    peaks[static_cast<std::size_t>(plane)] =
        strongest_of(points[static_cast<std::size_t>(plane)], units, plane);
  return peaks;
}

}  // namespace qkscope
