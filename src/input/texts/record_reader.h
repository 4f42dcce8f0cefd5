// Readers for the rows of one dataset file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input/texts/example_key.h"
#include "qkscope/texts.h"

namespace qkscope {

struct Record {
  std::optional<std::string> text;  // nullopt for null; may be invalid UTF-8
  ExampleId id;                     // set only if an id column was requested
  std::string where;                // position for error messages, e.g. "file: line 3"
};

// Advice appended to error messages about invalid UTF-8.
inline constexpr const char* kMendUtf8 =
    "mend the file (iconv -t UTF-8), or put U+FFFD in such places: dataset.errors=replace in a "
    "capture, --errors replace in 'qkscope dataset'";

struct RecordColumns {
  std::string text;
  std::optional<std::string> id;
  bool replace_invalid = false;  // for formats whose parser requires valid UTF-8
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual bool next(Record& record) = 0;
  virtual std::vector<CorpusColumn> columns() const = 0;
};

using RecordReaderPointer = std::unique_ptr<RecordReader>;

// Opens a file with the reader for its extension: Parquet, JSON Lines, JSON, CSV or plain text (a
// single row).
RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns);

// Throws bad input that lists the available columns and suggests the closest name.
[[noreturn]] void missing_column(const std::string& where, const std::string& column,
                                 const std::vector<CorpusColumn>& columns);

}  // namespace qkscope
