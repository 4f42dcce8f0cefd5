// Delete-a-group jackknife: recomputes the results of a head without one group of texts at a time.
#pragma once

#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Returns the jackknife standard error from the leave-one-group-out values. NaN if a value is NaN
// or there are fewer than two groups.
double jackknife_error(std::span<const double> without);

std::vector<Moments> leave_one_group_out_moments(const GroupedRows& rows);

// Returns the jackknife replicates of `head`, computed from leave-one-group-out moments: first
// component, axes a and b, statistics along them, and means of the plasticity profile. Discriminant
// and active planes are fitted to all texts; only accuracy and variance are recomputed. Statistics
// that need individual rows are NaN, and all are NaN for a replicate without rows.
std::vector<HeadReport> jackknife_replicates(const HeadReport& head,
                                             std::span<const Moments> queries,
                                             std::span<const Moments> keys,
                                             const AnalyzeOptions& options);

}  // namespace qkscope
