// Files of a text dataset: assigns files to splits and reads the rows of a file. The rules for
// splits are the same for local folders and for file listings from the Hub.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/texts.h"

namespace qkscope {

// Supported file extensions in order of preference: if a split exists in several formats, the
// format listed first is read.
inline constexpr std::array<std::string_view, 6> kDataEndings = {".parquet", ".jsonl", ".ndjson",
                                                                 ".json",    ".csv",   ".txt"};

// Returns the files of a split in reading order. `paths` lists all files of the dataset relative to
// its root; `card` is the content of README.md or "". Throws a bad-input error that starts with
// `where` if no file matches.
std::vector<std::string> choose_dataset_files(const std::vector<std::string>& paths,
                                              const std::string& card, const CorpusOptions& options,
                                              const std::string& where);

// Returns the files of the dataset at options.path in reading order: the file itself, or the files
// of the split inside a folder.
std::vector<std::string> find_corpus_files(const CorpusOptions& options);

// The id of an example as text and, if the id is a 64-bit integer, also as a number.
struct ExampleId {
  std::string text;
  std::optional<std::int64_t> integer;

  static ExampleId from_number(std::int64_t value);
  static ExampleId from_number(std::uint64_t value);
  static ExampleId from_number(double value);  // integral values count as integers
  static ExampleId from_string(std::string text) { return {std::move(text), std::nullopt}; }
  // Sets `integer` if the text (from CSV, Parquet or a large JSON number) is a decimal integer.
  static ExampleId from_digits(std::string text);
};

// Returns the key that seeds the sampling of an example: its integer id, or BLAKE2b of a text id.
std::int64_t derive_example_key(const ExampleId& id);

// Returns the id of a chunk of a text: "book#3" is the fourth chunk of "book".
inline std::string chunk_id(std::string_view text_id, std::size_t number) {
  return std::string(text_id) + "#" + std::to_string(number);
}

// Throws a bad-input error if the chunk overlap or minimum length does not fit the chunk size.
void check_chunk_options(const ChunkOptions& chunk);

struct CorpusRecord {
  std::optional<std::string> text;  // nullopt for null; may be invalid UTF-8
  ExampleId id;                     // set only if an id column was requested
  std::string where;                // position for error messages, e.g. "file: line 3"
};

// Advice appended to error messages about invalid UTF-8.
inline constexpr const char* kInvalidUtf8Advice =
    "mend the file (iconv -t UTF-8), or put U+FFFD in such places: dataset.errors=replace in a "
    "capture, --errors replace in 'qkscope dataset'";

struct RecordColumns {
  std::string text;
  std::optional<std::string> id;
  bool replace_invalid = false;  // replace invalid UTF-8 before JSON parsing
};

class MappedFile;

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Reads the next row. Returns false after the last one.
  virtual bool read_record(CorpusRecord& record) = 0;
  virtual std::vector<CorpusColumn> columns() const = 0;

  std::shared_ptr<const MappedFile> mapped_file;  // owns the text being parsed; null for Parquet
};

using RecordReaderPointer = std::unique_ptr<RecordReader>;

// Reads Parquet through Arrow: only the requested columns, in small batches of rows.
RecordReaderPointer open_parquet_records(const std::string& path, const RecordColumns& columns);

// The readers of text formats: `text` must outlive the reader, and error messages start with
// `where`. JSON Lines has one object per line; a JSON file is one list of objects; CSV has a header
// line, and quoted fields may contain commas, line breaks and doubled quotes.
RecordReaderPointer make_json_lines_reader(std::string_view text, const std::string& where,
                                           const RecordColumns& columns);
RecordReaderPointer make_json_array_reader(std::string_view text, const std::string& where,
                                           const RecordColumns& columns);
RecordReaderPointer make_csv_reader(std::string_view text, const std::string& where,
                                    const RecordColumns& columns);

// Throws a bad-input error that lists the available columns and suggests the closest name.
[[noreturn]] void throw_missing_column(const std::string& where, const std::string& column,
                                       const std::vector<CorpusColumn>& columns);

}  // namespace qkscope
