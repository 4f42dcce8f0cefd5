// Converts errors of Arrow and Parquet to Error; no other file does this conversion.
#pragma once

#include <string>
#include <utility>

#include <arrow/result.h>
#include <arrow/status.h>

#include "base/core/error.h"

namespace qkscope {

// Throws an Error whose message begins with `doing`, unless the status is OK. An errno in the
// status determines the kind of the Error. Without an errno, the Error has the given `kind`:
// bad_input for file contents, failure for I/O.
void check_arrow_status(const arrow::Status& status, const std::string& doing, ErrorKind kind);

template <typename T>
T value_or_throw(arrow::Result<T> result, const std::string& doing, ErrorKind kind) {
  check_arrow_status(result.status(), doing, kind);
  return std::move(result).ValueUnsafe();
}

// Rethrows the current exception; must be called inside a catch block around Parquet reads. Parquet
// exceptions, std::bad_alloc and std::length_error (caused by damaged files) become bad-input
// errors that name the file; other exceptions are rethrown unchanged.
[[noreturn]] void rethrow_parquet_error(const std::string& path);

// Runs `body`, which reads a Parquet file, and translates its exceptions with
// rethrow_parquet_error().
template <typename Body>
auto translate_parquet_errors(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (...) {
    rethrow_parquet_error(path);
  }
}

}  // namespace qkscope
