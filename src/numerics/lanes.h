// Short vectors that the compiler keeps in registers: loops written with them are vector code
// whatever the optimiser makes of the rest.
#pragma once

#include <cstring>

namespace qkscope {

using FourFloats = float __attribute__((vector_size(16)));
using TwoDoubles = double __attribute__((vector_size(16)));

// As many doubles as one register holds.
#if defined(__AVX512F__)
inline constexpr int kDoubleLanes = 8;
#elif defined(__AVX__)
inline constexpr int kDoubleLanes = 4;
#else
inline constexpr int kDoubleLanes = 2;
#endif
using Doubles = double __attribute__((vector_size(kDoubleLanes * sizeof(double))));

template <typename Vector, typename Number>
inline Vector load(const Number* from) {
  Vector value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Vector, typename Number>
inline void store(Number* to, const Vector& value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace qkscope
