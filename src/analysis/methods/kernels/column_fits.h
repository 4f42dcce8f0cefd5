// Weighted least-squares fits of the queries around given positions: every coordinate is regressed
// on position (degree 1) or averaged (degree 0) with the weights of a window.
//
// With weights w, scaled distances d = (t - centre) / scale and normal matrix A = sum w (1, d)(1,
// d)^T the fitted mean at the centre is b0 of A b = sum w (1, d) x. The residual variance is (sum w
// x^2 - b . sum w (1, d) x) / (sum w - tr(A^-1 B)) with B = sum w^2 (1, d)(1, d)^T, which is
// unbiased for independent rows of equal variance. All sums are kept by group of texts, so that the
// fit without a group (jackknife) needs no second pass over the rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/matrix.h"

namespace qkscope {

// Rows that enter one weighted least-squares fit, and their weights.
struct FitWindow {
  double centre = 0;  // position
  double scale = 1;   // tokens: half width of the window
  int degree = 1;     // 1: local line; 0: mean
  std::vector<std::int64_t> row;
  std::vector<double> weight;  // (rows of the window)
};

// Epanechnikov weights 1 - d^2 around `centre`. The half width grows from `half_width` in steps of
// 10 % until the effective number of rows (sum w)^2 / sum w^2 reaches kEffectiveRows, or until the
// window extends far beyond all rows. `position` must be ascending.
inline constexpr double kEffectiveRows = 100;
FitWindow epanechnikov_fit_window(std::span<const double> position, double centre,
                                  double half_width);
// Equal weights for the given rows.
FitWindow uniform_fit_window(std::vector<std::int64_t> rows, double centre, int degree);

// Fits of all windows. The results of a window without enough data are NaN.
struct WindowFits {
  Matrix mean;      // (windows, dim): at the centre
  Matrix slope;     // (windows, dim): per token; 0 for degree 0
  Matrix variance;  // (windows, dim): of the residuals, at least kVarianceFloor
};

class GroupedFits {
 public:
  // `rows` (rows, dim) must be centred. `position` and `group` (of texts) have one entry per row.
  GroupedFits(const FloatMatrix& rows, std::span<const double> position, std::span<const int> group,
              int groups, std::span<const FitWindow> windows);

  // Returns the fits without the texts of `group` (jackknife), or of all texts if `group` is -1.
  WindowFits fits_without_group(int group) const;

 private:
  // Sums over the rows of one window and group: of w d^k and w^2 d^k (k = 0, 1, 2), and per
  // coordinate of w x, w d x and w x^2.
  struct Moments {
    double rows = 0;
    double w[3] = {};
    double w2[3] = {};
  };
  void fit(std::int64_t window, int group, WindowFits& fits) const;

  int groups_;
  std::int64_t dim_;
  std::vector<double> scale_;     // (windows)
  std::vector<int> degree_;       // (windows)
  std::vector<Moments> moments_;  // (windows, groups)
  Matrix sums_;                   // (windows, groups, 3 dim)
  Matrix totals_;                 // (windows, 3 dim)
};

// The residual covariance of a window's rows around its fit as a lower Cholesky factor (dim, dim):
// the diagonal is the fit's variance, the correlations are shrunk towards 0 with the
// Ledoit-Wolf intensity.
Matrix shrunk_covariance_cholesky(const FloatMatrix& rows, std::span<const double> position,
                                  const FitWindow& window, const WindowFits& fits,
                                  std::int64_t column);

}  // namespace qkscope
