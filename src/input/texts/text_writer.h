// Writes a text dataset row by row, as Parquet or JSON Lines depending on the file extension.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

namespace qkscope {

struct TextRow {
  std::variant<std::int64_t, std::string> id;
  std::string text;
  std::int64_t tokens = 0;
};

class TextWriter {
 public:
  virtual ~TextWriter() = default;
  virtual void add(TextRow row) = 0;
  // Moves the complete file to its final name. Without finish() no file remains.
  virtual void finish() = 0;
};

// Throws bad input for any other file extension.
std::unique_ptr<TextWriter> open_text_writer(const std::string& path, const std::string& id_column);

}  // namespace qkscope
