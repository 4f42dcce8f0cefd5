#include "base/io/arrow_error.h"

#include <new>
#include <stdexcept>
#include <string_view>

#include <arrow/util/io_util.h>
#include <parquet/exception.h>

namespace qkscope {

namespace {

// Formats an Arrow status with its detail: the text of the errno ("No space left on device").
std::string describe_status(const arrow::Status& status) {
  auto text = status.message().empty() ? status.CodeAsString() : status.message();
  if (status.detail() != nullptr) text += ": " + status.detail()->ToString();
  return text;
}

// Detects a failed allocation by its message: Parquet and Thrift have no error code for it.
bool is_out_of_memory_message(std::string_view text) {
  return text.find("std::bad_alloc") != text.npos || text.find("Out of memory") != text.npos;
}

}  // namespace

void check_arrow_status(const arrow::Status& status, const std::string& doing, ErrorKind kind) {
  if (status.ok()) return;
  if (const int error = arrow::internal::ErrnoFromStatus(status); error != 0)
    kind = error_kind_from_errno(error);
  const auto text = describe_status(status);
  if (status.IsOutOfMemory() || is_out_of_memory_message(text))
    throw_failure("{}: out of memory", doing);
  throw Error(kind, fmt::format("{}: {}", doing, text));
}

void rethrow_parquet_error(const std::string& path) {
  try {
    throw;
  } catch (const parquet::ParquetException& error) {
    if (is_out_of_memory_message(error.what())) throw_failure("{}: out of memory", path);
    reject("{}: not a readable Parquet file: {}", path, error.what());
  } catch (const std::bad_alloc&) {
    throw_failure("{}: out of memory", path);
  } catch (const std::length_error&) {
    reject("{}: not a readable Parquet file: it claims an impossible number of rows", path);
  }
}

}  // namespace qkscope
