// The one place where Arrow's and Parquet's errors become ours.
#pragma once

#include <string>

#include <arrow/result.h>
#include <arrow/status.h>

#include "core/error.h"

namespace qkscope {

// Throws on a status that is not OK: what lies on the disk is bad input, the disk itself a failure.
void check_arrow(const arrow::Status& status, const std::string& doing, ErrorKind kind);

template <typename T>
T take_arrow(arrow::Result<T> result, const std::string& doing, ErrorKind kind) {
  check_arrow(result.status(), doing, kind);
  return std::move(result).ValueUnsafe();
}

}  // namespace qkscope
