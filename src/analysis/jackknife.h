// A head without each group of texts in turn: how far its numbers move with other texts.
#pragma once

#include <span>
#include <vector>

#include "analysis/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// The moments without each group.
std::vector<Moments> leave_groups_out(const GroupedRows& rows);

// The numbers of `head` again from moments without each group: the first component, a, b and what
// is along them; with the discriminant, the active planes and the queries' model of all texts, its
// accuracy, the variance on them and the plasticity profile. Numbers that would take the rows
// themselves are NaN, as are all of a head that has no rows left.
std::vector<HeadReport> replicates(const HeadReport& head, std::span<const Moments> queries,
                                   std::span<const Moments> keys, const AnalyzeOptions& options);

}  // namespace qkscope
