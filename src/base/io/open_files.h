// How many files this process may still open.
#pragma once

#include <cstddef>

namespace qkscope {

// The limit that the system sets (ulimit -n) less the files that are open now; 0 where there is no
// room.
std::size_t open_files_left();

}  // namespace qkscope
