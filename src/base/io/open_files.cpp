#include "base/io/open_files.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <sys/resource.h>

namespace qkscope {

std::size_t open_files_left() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<int>::max();
  std::error_code none;
  const std::filesystem::directory_iterator open("/proc/self/fd", none);
  const auto count = none ? 0 : static_cast<std::size_t>(std::distance(open, {}));
  return static_cast<std::size_t>(limit.rlim_cur) - std::min<std::size_t>(count, limit.rlim_cur);
}

}  // namespace qkscope
