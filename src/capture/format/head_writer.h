// Writes a head file of a capture incrementally; finish() gives the file its final name.
// write_head_file() in qkscope/captures.h writes a whole file at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "qkscope/captures.h"

namespace qkscope {

struct HeadWriterOptions {
  int head_dim = 0;
  bool token_strings = false;          // adds the column token_str
  bool example_keys = false;           // adds the column example_key
  std::int64_t row_group_size = 4096;  // rows
  Metadata metadata;                   // keys in capture/format/metadata.h
};

// The rows of one append() call; all spans have the same number of rows.
struct HeadRowsView {
  std::span<const std::int32_t> bucket;        // (rows)
  std::span<const std::int32_t> example_id;    // (rows)
  std::span<const std::int32_t> position;      // (rows)
  std::span<const float> vectors;              // (rows, head_dim)
  std::optional<std::int32_t> sliding_window;  // the same in every call
  std::span<const std::string> token_str;      // (rows) with HeadWriterOptions::token_strings
  std::span<const std::int64_t> example_key;   // (rows) with HeadWriterOptions::example_keys
};

HeadRowsView as_head_rows_view(const HeadRows& rows);

class HeadWriter {
 public:
  HeadWriter(const std::string& path, HeadWriterOptions options);
  ~HeadWriter();  // removes the temporary file if finish() was not called

  void append(const HeadRowsView& rows);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
