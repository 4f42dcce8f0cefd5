#include "input/texts/record_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "base/io/csv_rows.h"
#include "base/io/mapped_file.h"
#include "input/texts/split_files.h"

namespace qkscope {
namespace {

class CsvReader : public RecordReader {
 public:
  CsvReader(std::string_view text, std::string where, const RecordColumns& columns)
      : where_(std::move(where)), rows_(text, {.skip_empty_lines = true}) {
    if (!read_row(names_)) bad_input("{}: the file is empty; expected a header line", where_);
    text_ = index_of(columns.text);
    if (columns.id) id_ = index_of(*columns.id);
  }

  bool next(Record& record) override {
    if (!read_row(fields_)) return false;
    record.where = fmt::format("{}: line {}", where_, rows_.row_line());
    if (fields_.size() != names_.size())
      bad_input("{}: the row has {} fields, the header has {}", record.where, fields_.size(),
                names_.size());
    record.text = std::move(fields_[text_]);
    if (id_) record.id = ExampleId::from_digits(std::move(fields_[*id_]));
    return true;
  }

  std::vector<CorpusColumn> columns() const override {
    std::vector<CorpusColumn> columns;
    for (const std::string& name : names_) columns.push_back({name, "string"});
    return columns;
  }

 private:
  std::size_t index_of(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) missing_column(where_, name, columns());
    return static_cast<std::size_t>(found - names_.begin());
  }

  // Returns false at the end of the file.
  bool read_row(std::vector<std::string>& fields) {
    const auto status = rows_.next(fields);
    if (status == CsvRows::Status::unclosed_quote)
      bad_input("{}: line {}: a quoted field has no end", where_, rows_.error_line());
    if (status == CsvRows::Status::text_after_quote)
      bad_input("{}: line {}: expected a comma or a line end after a quoted field", where_,
                rows_.error_line());
    return status == CsvRows::Status::row;
  }

  std::string where_;
  CsvRows rows_;
  std::vector<std::string> names_, fields_;
  std::size_t text_ = 0;
  std::optional<std::size_t> id_;
};

// Owns the mapped file of a reader that works on text in memory.
class MappedReader : public RecordReader {
 public:
  using Read = RecordReaderPointer (*)(std::string_view, const std::string&, const RecordColumns&);

  MappedReader(const std::string& path, const RecordColumns& columns, Read read)
      : file_(path), reader_(read(file_.text(), path, columns)) {}

  bool next(Record& record) override { return reader_->next(record); }
  std::vector<CorpusColumn> columns() const override { return reader_->columns(); }

 private:
  MappedFile file_;
  RecordReaderPointer reader_;
};

template <MappedReader::Read read>
RecordReaderPointer open_mapped(const std::string& path, const RecordColumns& columns) {
  return std::make_unique<MappedReader>(path, columns, read);
}

// Reads a plain text file as a single row.
class TextReader : public RecordReader {
 public:
  TextReader(const std::string& path, const RecordColumns& columns) : path_(path) {
    if (columns.id) missing_column(path, *columns.id, this->columns());
  }

  bool next(Record& record) override {
    if (done_) return false;
    done_ = true;
    record.text = std::string(MappedFile(path_).text());
    record.where = path_;
    return true;
  }
  std::vector<CorpusColumn> columns() const override { return {{"text", "string"}}; }

 private:
  std::string path_;
  bool done_ = false;
};

RecordReaderPointer open_text(const std::string& path, const RecordColumns& columns) {
  return std::make_unique<TextReader>(path, columns);
}

using Open = RecordReaderPointer (*)(const std::string&, const RecordColumns&);
// Openers in the order of kDataEndings.
constexpr std::array<Open, kDataEndings.size()> kOpen = {
    open_parquet_records,         open_mapped<read_json_lines>, open_mapped<read_json_lines>,
    open_mapped<read_json_array>, open_mapped<read_csv>,        open_text,
};

}  // namespace

ExampleId ExampleId::from(std::int64_t value) {
  return {fmt::format("{}", value), value};
}

ExampleId ExampleId::from(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return from_text(fmt::format("{}", value));
  return from(static_cast<std::int64_t>(value));
}

ExampleId ExampleId::from(double value) {
  if (std::trunc(value) != value || std::isinf(value)) return from_text(fmt::format("{}", value));
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value < -kLimit || value >= kLimit) return from_text(fmt::format("{:.0f}", value));
  return from(static_cast<std::int64_t>(value));
}

ExampleId ExampleId::from_digits(std::string text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return from_text(std::move(text));
  return {std::move(text), value};
}

std::int64_t example_key(const ExampleId& id) {
  return id.integer ? *id.integer : static_cast<std::int64_t>(blake2b_64(id.text));
}

RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns) {
  const auto* const ending =
      std::find_if(kDataEndings.begin(), kDataEndings.end(),
                   [&](std::string_view known) { return path.ends_with(known); });
  if (ending == kDataEndings.end())
    bad_input("{}: what kind of file is this? Known are .parquet, .jsonl, .json, .csv and .txt",
              path);
  return kOpen[static_cast<std::size_t>(ending - kDataEndings.begin())](path, columns);
}

RecordReaderPointer read_csv(std::string_view text, const std::string& where,
                             const RecordColumns& columns) {
  return std::make_unique<CsvReader>(text, where, columns);
}

void missing_column(const std::string& where, const std::string& column,
                    const std::vector<CorpusColumn>& columns) {
  std::vector<std::string> names;
  for (const auto& [name, type] : columns) names.push_back(name);
  const std::string near = nearest(column, names);
  const auto list = fmt::format("{}", fmt::join(names, ", "));
  bad_input("{}: there is no column '{}'; the columns are: {}{}", where, column,
            list.empty() ? "none" : list,
            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

}  // namespace qkscope
