// Numbers that a head has many of: bins of its profile, cells of its heatmap, dimensions,
// components and planes.
#pragma once

#include "study/compare/quantities.h"

namespace qkscope {

// Plain mean over the profile's bins whose middle lies in the published one, then over heads.
OurNumber profile_number(const PublishedNumber& published, RunNumbers& run);
// The profile's bin that the middle of the published one lies in, mean over heads.
OurNumber line_number(const PublishedNumber& published, RunNumbers& run);
// The same cell, mean over heads.
OurNumber heatmap_number(const PublishedNumber& published, RunNumbers& run);
// The weight of a dimension, mean over heads.
OurNumber weight_number(const PublishedNumber& published, RunNumbers& run);
// The PCA of one side of one head.
OurNumber component_number(const PublishedNumber& published, RunNumbers& run);
// The share of the complement's variance on a pair of axes of one head.
OurNumber complement_share(RunNumbers& run, std::int64_t layer, std::int64_t head,
                           std::int64_t pair);

}  // namespace qkscope
