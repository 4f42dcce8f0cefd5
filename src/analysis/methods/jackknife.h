// A head without each group of texts in turn: how far its numbers move with other texts.
#pragma once

#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// The standard error of a number from what it is without each group in turn; NaN where it does not
// exist without some group, or there is only one.
double jackknife_error(std::span<const double> without);

// The moments without each group.
std::vector<Moments> leave_groups_out(const GroupedRows& rows);

// The numbers of `head` again from moments without each group: the first component, a, b and what
// is along them, the means of its plasticity profile; with the discriminant and the active planes
// of all texts, its accuracy and the variance on them. Numbers that would take the rows themselves
// are NaN, as are all of a head that has no rows left.
std::vector<HeadReport> replicates(const HeadReport& head, std::span<const Moments> queries,
                                   std::span<const Moments> keys, const AnalyzeOptions& options);

}  // namespace qkscope
