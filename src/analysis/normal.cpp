#include "analysis/normal.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

namespace qkscope {
namespace {

// exp(u^2) erfc(u) (1 + 2u) as a polynomial in (u - 3) / (u + 3), for all u >= 0: interpolated at
// the Chebyshev nodes with 40 digits; relative error below 5e-16.
constexpr double kErfcx[] = {
    1.2530080582697296,     -0.13562110612457573,    -0.04756229435344576,   0.129645158702281,
    -0.11927366341575335,   0.06830802735644051,     -0.02377051490712486,   0.0025293916666211625,
    0.0018886902217603342,  -0.000779831276440303,   -0.000105158888745708,  0.00012509529969692863,
    4.945791788878783e-06,  -2.0089974601937562e-05, -7.218910913909693e-07, 3.4542640815449015e-06,
    3.4040811203344006e-07, -5.963735757072212e-07,  -1.232972365581405e-07, 8.764763429942915e-08,
    2.900096033455807e-08,  -7.639805706660184e-09,  -3.3911975149641994e-09};

constexpr double kLargest = 26.5;

// exp(x) for -703 <= x <= 0 without branches, so that loops over it become vector code.
inline double exp_of_negative(double x) {
  constexpr double kInvLn2 = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = x * kInvLn2 + kRound;
  const double k = shifted - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  // Taylor: |r| <= ln(2) / 2, the first term left out is 4e-18.
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const auto scale = (std::bit_cast<std::uint64_t>(shifted) + 1023) << 52;
  return p * std::bit_cast<double>(scale);
}

inline double erfc_of_positive(double u) {
  u = u < kLargest ? u : kLargest;
  const double y = (u - 3) / (u + 3);
  double p = kErfcx[std::size(kErfcx) - 1];
#pragma GCC unroll 32
  for (int i = static_cast<int>(std::size(kErfcx)) - 2; i >= 0; --i) p = p * y + kErfcx[i];
  const double square = u * u;
  const double lost = std::fma(u, u, -square);  // exp(-u^2) = exp(-square) (1 - lost)
  return exp_of_negative(-square) * (1 - lost) * p / (1 + 2 * u);
}

}  // namespace

void erfc_in_place(std::span<double> z) {
  double* const values = z.data();
  const std::size_t count = z.size();
  for (std::size_t i = 0; i < count; ++i) values[i] = erfc_of_positive(values[i]);
}

void plasticity_of(std::span<double> z) {
  // 4 Phi(z) Phi(-z) = erfc(u) (2 - erfc(u)) with u = |z| / sqrt(2).
  double* const values = z.data();
  const std::size_t count = z.size();
  for (std::size_t i = 0; i < count; ++i) {
    const double e = erfc_of_positive(std::fabs(values[i]) * (1 / std::numbers::sqrt2));
    values[i] = e * (2 - e);
  }
}

}  // namespace qkscope
