// Correlations of two lists of numbers, as they are and by rank.
#pragma once

#include <cstdint>
#include <span>

#include "qkscope/correlation.h"

namespace qkscope {

struct PairCorrelation {
  std::int64_t n = 0;    // pairs in which both exist
  Correlation pearson;   // NaN below three pairs
  Correlation spearman;  // of the ranks, ties at their mean; p by the same t distribution
};

PairCorrelation correlate(std::span<const double> x, std::span<const double> y);

}  // namespace qkscope
