// Verifies all segments of one part.
#pragma once

#include "capture/format/journal.h"

namespace qkscope {

inline void verify_part(const Journal& journal) {
  SegmentVerificationProgress part{&journal};
  verify_new_segments({&part, 1});
}

}  // namespace qkscope
