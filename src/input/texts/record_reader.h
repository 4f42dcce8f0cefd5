// One file of a dataset, row by row.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input/texts/example_key.h"
#include "qkscope/texts.h"

namespace qkscope {

struct Record {
  std::optional<std::string> text;  // nullopt: null. May not be UTF-8.
  ExampleId id;                     // where an id column was asked for
  std::string where;                // "file: line 3"
};

// What can be done about it, for the end of a message.
inline constexpr const char* kMendUtf8 =
    "mend the file (iconv -t UTF-8), or put U+FFFD in such places: dataset.errors=replace in a "
    "capture, --errors replace in 'qkscope dataset'";

struct RecordColumns {
  std::string text;
  std::optional<std::string> id;
  bool replace_invalid = false;  // for formats whose parser insists on UTF-8
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual bool next(Record& record) = 0;
  virtual std::vector<CorpusColumn> columns() const = 0;
};

using RecordReaderPointer = std::unique_ptr<RecordReader>;

// By the ending of the file's name: Parquet (parquet_reader.h), JSON (json_reader.h), CSV
// (csv_reader.h), or a plain text that is one row.
RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns);

// Says that `where` has no such column, which it has instead, and the nearest of them.
[[noreturn]] void missing_column(const std::string& where, const std::string& column,
                                 const std::vector<CorpusColumn>& columns);

}  // namespace qkscope
