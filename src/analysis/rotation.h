// Planar rotation: the direction a along which a head's rows drift with position, the direction b
// that separates queries from keys, and what is left when both are taken away.
#pragma once

#include "analysis/kernels/plane_units.h"
#include "analysis/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// `units` is memory for the complement's planes that may be used again for the next head; null: its
// own.
RotationResult planar_rotation(const CentredRows& queries, const CentredRows& keys,
                               const PooledMoments& pooled, const RotationOptions& options,
                               PlaneUnits* units = nullptr);

}  // namespace qkscope
