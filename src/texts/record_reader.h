// One file of a dataset, row by row.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "texts/corpus.h"
#include "texts/example_key.h"

namespace qkscope {

struct Record {
  std::optional<std::string> text;  // nullopt: null. May not be UTF-8.
  ExampleId id;                     // where an id column was asked for
  std::string where;                // "file: line 3"
};

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

// Texts already in memory, which must outlive the reader; `where` names them in messages.
RecordReaderPointer read_json_lines(std::string_view text, const std::string& where,
                                    const RecordColumns& columns);
RecordReaderPointer read_json_array(std::string_view text, const std::string& where,
                                    const RecordColumns& columns);
RecordReaderPointer read_csv(std::string_view text, const std::string& where,
                             const RecordColumns& columns);

// Files.
RecordReaderPointer open_parquet(const std::string& path, const RecordColumns& columns);
RecordReaderPointer open_json_lines(const std::string& path, const RecordColumns& columns);
RecordReaderPointer open_json_array(const std::string& path, const RecordColumns& columns);
RecordReaderPointer open_csv(const std::string& path, const RecordColumns& columns);
RecordReaderPointer open_text(const std::string& path, const RecordColumns& columns);

// Says that `where` has no such column, which it has instead, and the nearest of them.
[[noreturn]] void missing_column(const std::string& where, const std::string& column,
                                 const std::vector<CorpusColumn>& columns);

}  // namespace qkscope
