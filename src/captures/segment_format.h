// The fixed parts of a segment file, in the byte order of the machine: segments are working files
// that never leave it.
#pragma once

#include <cstdint>

namespace qkscope {

inline constexpr char kSegmentMagic[8] = {'Q', 'K', 'S', 'E', 'G', '0', '1', '\n'};

struct SegmentTrailer {
  std::uint64_t examples = 0;
  std::uint64_t groups = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t table_offset = 0;
  char magic[8] = {'Q', 'K', 'S', 'E', 'G', '0', '1', '\n'};
};

}  // namespace qkscope
