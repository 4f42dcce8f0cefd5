// Delete-a-group jackknife: a head's numbers without each group of texts in turn.
#pragma once

#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Returns the jackknife standard error from the values without each group. NaN if a value is NaN or
// there are fewer than two groups.
double jackknife_error(std::span<const double> without);

// Returns the moments of the rows without each group of texts.
std::vector<Moments> leave_groups_out(const GroupedRows& rows);

// Replicates of `head` from the moments without each group: first component, a, b and the numbers
// along them, and the means of the plasticity profile. Discriminant and active planes are those of
// all texts; only accuracy and variance are recomputed. Numbers that need rows are NaN, as is
// everything when no rows are left.
std::vector<HeadReport> replicates(const HeadReport& head, std::span<const Moments> queries,
                                   std::span<const Moments> keys, const AnalyzeOptions& options);

}  // namespace qkscope
