#include "input/texts/record_reader.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/mapped_file.h"
#include "input/texts/csv_reader.h"
#include "input/texts/json_reader.h"
#include "input/texts/parquet_reader.h"
#include "input/texts/split_files.h"

namespace qkscope {
namespace {

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
    open_parquet,
    open_mapped<read_json_lines>,
    open_mapped<read_json_lines>,
    open_mapped<read_json_array>,
    open_mapped<read_csv>,
    open_text,
};

}  // namespace

RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns) {
  const auto* const ending =
      std::find_if(kDataEndings.begin(), kDataEndings.end(),
                   [&](std::string_view known) { return path.ends_with(known); });
  if (ending == kDataEndings.end())
    bad_input("{}: what kind of file is this? Known are .parquet, .jsonl, .json, .csv and .txt",
              path);
  return kOpen[static_cast<std::size_t>(ending - kDataEndings.begin())](path, columns);
}

void missing_column(const std::string& where, const std::string& column,
                    const std::vector<CorpusColumn>& columns) {
  std::vector<std::string> names;
  std::string list;
  for (const auto& [name, type] : columns) {
    names.push_back(name);
    list += (list.empty() ? "" : ", ") + name;
  }
  const std::string near = nearest(column, names);
  bad_input("{}: there is no column '{}'; the columns are: {}{}", where, column,
            list.empty() ? "none" : list,
            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

}  // namespace qkscope
