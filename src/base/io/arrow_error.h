// The one place where Arrow's and Parquet's errors become ours.
#pragma once

#include <string>
#include <utility>

#include <arrow/result.h>
#include <arrow/status.h>

#include "base/core/error.h"

namespace qkscope {

// Throws on a status that is not OK: what lies on the disk is bad input, the disk itself a failure.
void check_arrow(const arrow::Status& status, const std::string& doing, ErrorKind kind);

template <typename T>
T take_arrow(arrow::Result<T> result, const std::string& doing, ErrorKind kind) {
  check_arrow(result.status(), doing, kind);
  return std::move(result).ValueUnsafe();
}

// Called inside a catch block around code that reads a Parquet file: exceptions of Parquet, and
// those of the standard library that a damaged file leads to, are thrown as bad input that names
// the file; others as they are.
[[noreturn]] void rethrow_parquet_error(const std::string& path);

// For the parts of Parquet that throw: runs `body`, which reads the file.
template <typename Body>
auto reading_parquet(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (...) {
    rethrow_parquet_error(path);
  }
}

}  // namespace qkscope
