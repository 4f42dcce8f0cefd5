// The Fourier sums of a signal at whole-number positions, on a grid of frequencies.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "base/numerics/fft.h"

namespace qkscope {

struct FrequencyBand {
  double low = 0;  // radians per token, 0 <= low < high <= pi
  double high = 1;
};

// |S|^2 at a half grid point, to a hundredth.
struct HighPoint {
  std::int64_t half = 0;  // 2 i at grid point i, 2 i + 1 halfway after it
  float power = 0;
};

// Where a row's value goes.
struct SpreadRow {
  std::uint32_t start;  // the first vector of four points it reaches
  std::uint32_t taps;
};

// Points of a grid.
struct GridStretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// What spectra over nearly the same length and the same band have in common.
struct SpectrumTables {
  // `tokens` positions for every five points.
  SpectrumTables(std::size_t size, std::int64_t tokens, FrequencyBand band);
  // Made once per program.
  static std::shared_ptr<const SpectrumTables> of(std::size_t size, std::int64_t tokens,
                                                  FrequencyBand band);

  bool inside(std::int64_t k) const { return k >= inner.begin && k < inner.end; }
  // Gains of neighbours are too different for what lies between them to have one.
  bool is_small() const { return fft->size() <= 256; }

  std::shared_ptr<const Fft> fft;
  double step;
  std::int64_t first;  // half points from before the band's low end to behind its high end
  std::int64_t last;
  GridStretch inner;                    // points well inside the band
  std::vector<FourFloats> taps;         // (tokens, 4, 3): the kernel for every place in a vector
  std::vector<float> gain;              // (size / 2 + 1): 1 / response of the kernel, per point
  int shift = 0;                        // 2^shift blocks share gains
  std::vector<FourFloats> shared_gain;  // (blocks >> shift, 4), and one line more: squares
  std::vector<GridStretch> edges;       // points where shared_gain may be 0 though they count
  std::vector<std::uint32_t> places;    // (margin + blocks + margin): the first vector of each

 private:
  void add_taps(std::int64_t tokens);
  void set_gains(double highest);
  void share_gains();
  void add_edges(GridStretch all, GridStretch inside);
  void add_places();
};

// S(omega) = sum z_t exp(-i omega (t - origin)) at omega = k * step(). The grid has at least 1.4
// points per 2 pi / length, so that what lies between them follows from its neighbours.
class Spectrum {
 public:
  // Frequencies far outside the band will not be asked for. The lower its end, the fewer points
  // stand for the positions: each row is spread over the eight nearest by a smooth kernel, and what
  // the kernel lets through wrongly is below 2e-3 of what it should.
  Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, FrequencyBand band);

  // One value per offset.
  void compute(std::span<const std::complex<double>> values);

  double step() const { return tables_->step; }
  double origin() const { return static_cast<double>(middle_) * tokens_per_point(); }
  std::int64_t size() const { return static_cast<std::int64_t>(fft().size()); }
  // Points as far apart as this lie side by side: who wants many takes them together.
  std::size_t stride() const { return fft().blocks(); }
  // Half grid points from before the band's low end to behind its high end, of one sign.
  std::int64_t first_half() const { return tables_->first; }
  std::int64_t last_half() const { return tables_->last; }
  // Whether a grid point, of either sign, is well inside the band.
  bool inside(std::int64_t k) const { return tables_->inside(std::abs(k)); }
  // At grid point k, of either sign.
  std::complex<double> at(std::int64_t k) const {
    const auto value = raw(k);
    const double gain = tables_->gain[static_cast<std::size_t>(std::abs(signed_index(k)))];
    return {gain * value.real(), gain * value.imag()};
  }
  // |S|^2 at half grid point `half`: grid points are the even ones, what lies between them comes
  // from eight points around it, to a few percent.
  double power(std::int64_t half) const;
  // The largest power at a grid point inside the band, to a hundredth.
  float highest() const { return highest_; }
  // Half grid points of the band, of both signs, with a power above `least`, some of them twice; a
  // negative one as 2 size + half. Places between two grid points count where one of the two is
  // above `near`.
  void find_above(float least, float near, std::vector<HighPoint>& found) const;
  // |S|^2 at a half grid point and one and two quarters of a step before and after it, from 16
  // points around each.
  std::array<double, 5> quarters(std::int64_t half) const;

 private:
  const Fft& fft() const { return *tables_->fft; }
  double tokens_per_point() const;
  std::size_t index(std::int64_t k) const {
    return static_cast<std::size_t>(k) & (fft().size() - 1);
  }
  std::int64_t signed_index(std::int64_t k) const {
    const auto at = static_cast<std::int64_t>(index(k));
    return 2 * at > size() ? at - size() : at;
  }
  std::complex<float> raw(std::int64_t k) const {
    const auto [vector, lane] = fft().find(index(k));
    const FourComplex& four = signal_[vector];
    return {four.re[lane], four.im[lane]};
  }
  void spread(std::span<const std::complex<double>> values);
  void copy_margins();
  void find_between(GridStretch stretch, std::span<const float> powers, float least, float near,
                    std::vector<HighPoint>& found) const;

  std::int64_t tokens_;
  std::shared_ptr<const SpectrumTables> tables_;
  std::int64_t middle_;  // the point that stands for the origin
  std::vector<SpreadRow> rows_;
  std::vector<FourComplex> signal_;  // (size / 4), and margins that go round at the ends
  std::vector<float> largest_;       // (blocks + 1, 4): power in each vector
  std::vector<float> edge_powers_;   // (edges: points, and one more)
  float highest_ = 0;
};

}  // namespace qkscope
