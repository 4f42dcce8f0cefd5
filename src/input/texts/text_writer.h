// Writes a text dataset row by row: Parquet or JSON Lines, by the ending of the file's name.
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
  // The file appears under its name; without it nothing is left.
  virtual void finish() = 0;
};

// Any other ending is bad input.
std::unique_ptr<TextWriter> open_text_writer(const std::string& path, const std::string& id_column);

}  // namespace qkscope
