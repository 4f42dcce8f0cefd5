#include "io/arrow_error.h"

namespace qkscope {

void check_arrow(const arrow::Status& status, const std::string& doing, ErrorKind kind) {
  if (status.ok()) return;
  throw Error(kind, fmt::format("{}: {}", doing, status.message()));
}

}  // namespace qkscope
