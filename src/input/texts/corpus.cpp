#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "base/io/csv_rows.h"
#include "base/io/mapped_file.h"
#include "input/texts/dataset_files.h"
#include "qkscope/texts.h"

namespace qkscope {
namespace {

class CsvReader : public RecordReader {
 public:
  CsvReader(std::string_view text, std::string where, const RecordColumns& columns)
      : where_(std::move(where)), rows_(text, {.skip_empty_lines = true}) {
    if (!read_row(names_)) reject("{}: the file is empty; expected a header line", where_);
    text_ = column_index_of(columns.text);
    if (columns.id) id_ = column_index_of(*columns.id);
  }

  bool read_record(CorpusRecord& record) override {
    if (!read_row(fields_)) return false;
    record.where = fmt::format("{}: line {}", where_, rows_.row_line_number());
    if (fields_.size() != names_.size())
      reject("{}: the row has {} fields, the header has {}", record.where, fields_.size(),
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
  std::size_t column_index_of(const std::string& name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) throw_missing_column(where_, name, columns());
    return static_cast<std::size_t>(found - names_.begin());
  }

  // Returns false at the end of the file.
  bool read_row(std::vector<std::string>& fields) {
    const auto status = rows_.read_row(fields);
    if (status == CsvParser::CsvRowStatus::unclosed_quote)
      reject("{}: line {}: a quoted field has no end", where_, rows_.error_line_number());
    if (status == CsvParser::CsvRowStatus::text_after_quote)
      reject("{}: line {}: expected a comma or a line end after a quoted field", where_,
             rows_.error_line_number());
    return status == CsvParser::CsvRowStatus::row;
  }

  std::string where_;
  CsvParser rows_;
  std::vector<std::string> names_, fields_;
  std::size_t text_ = 0;
  std::optional<std::size_t> id_;
};

// Reads a plain text file as one row; its column `file` is the file name without extension.
class PlainTextReader : public RecordReader {
 public:
  PlainTextReader(std::string_view text, std::string where)
      : text_(text), where_(std::move(where)) {}

  bool read_record(CorpusRecord& record) override {
    if (!text_) return false;
    record = {.text = std::string(*text_),
              .id = ExampleId::from_string(std::filesystem::path(where_).stem().string()),
              .where = where_};
    text_.reset();
    return true;
  }
  std::vector<CorpusColumn> columns() const override {
    return {{"text", "string"}, {"file", "string"}};
  }

 private:
  std::optional<std::string_view> text_;  // nullopt after the row was read
  std::string where_;
};

RecordReaderPointer open_plain_text(std::string_view text, const std::string& where,
                                    const RecordColumns& columns) {
  auto reader = std::make_unique<PlainTextReader>(text, where);
  if (columns.id && *columns.id != "file")
    throw_missing_column(where, *columns.id, reader->columns());
  return reader;
}

// Opens a file according to its extension: Parquet, JSON Lines, JSON, CSV or plain text (one row).
RecordReaderPointer open_record_reader(const std::string& path, const RecordColumns& columns) {
  // Readers for the formats in kDataEndings, in that order, except the first one (Parquet).
  constexpr std::array kTextReaders = {make_json_lines_reader, make_json_lines_reader,
                                       make_json_array_reader, make_csv_reader, open_plain_text};
  static_assert(kTextReaders.size() + 1 == kDataEndings.size());
  const auto ending = std::ranges::find_if(
      kDataEndings, [&](std::string_view known) { return path.ends_with(known); });
  if (ending == kDataEndings.end())
    reject("{}: what kind of file is this? Known are .parquet, .jsonl, .json, .csv and .txt", path);
  if (ending == kDataEndings.begin()) return open_parquet_records(path, columns);
  const auto format = static_cast<std::size_t>(ending - kDataEndings.begin()) - 1;
  auto file = std::make_shared<const MappedFile>(path);
  auto reader = kTextReaders[format](file->text(), path, columns);
  reader->mapped_file = std::move(file);
  return reader;
}

class FileCorpus : public Corpus {
 public:
  explicit FileCorpus(const CorpusOptions& options)
      : options_(options), files_(find_corpus_files(options)) {
    if (options.shard_count < 1 || options.shard_index < 0 ||
        options.shard_index >= options.shard_count)
      reject("shard {}/{}: the first number must be from 0 to one less than the second",
             options.shard_index, options.shard_count);
    open_next_file();
    columns_ = reader_->columns();
  }

  bool next(Document& document) override {
    return translate_exceptions([&] {
      CorpusRecord record;
      while (next_record(record)) {
        const std::int64_t row = row_++;
        if (row % options_.shard_count != options_.shard_index) continue;
        ++counts_.rows;
        if (!move_text_if_usable(record, document)) continue;
        ++counts_.documents;
        document.row = row;
        const ExampleId id =
            options_.id_column ? std::move(record.id) : ExampleId::from_number(row);
        document.example_key = options_.number_rows ? row : derive_example_key(id);
        document.source_id = id.text;
        return true;
      }
      if (row_ == 0) reject("{}: the dataset has no rows", options_.path);
      if (counts_.documents == 0 && counts_.rows > 0)
        reject("{}: none of the {} rows has a text in column '{}'", options_.path, counts_.rows,
               options_.text_column);
      return false;
    });
  }

  const Counts& counts() const override { return counts_; }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<CorpusColumn>& columns() const override { return columns_; }

 private:
  void open_next_file() {
    reader_ = open_record_reader(
        files_[next_file_++], {options_.text_column, options_.id_column, options_.replace_invalid});
  }

  bool next_record(CorpusRecord& record) {
    if (options_.max_samples > 0 && row_ >= options_.max_samples) return false;
    while (!reader_->read_record(record)) {
      if (next_file_ == files_.size()) return false;
      open_next_file();
    }
    return true;
  }

  bool move_text_if_usable(CorpusRecord& record, Document& document) {
    if (!record.text || record.text->empty()) {
      ++(record.text ? counts_.empty_texts : counts_.null_texts);
      return false;
    }
    if (const auto at = find_invalid_utf8(*record.text); at != std::string::npos) {
      if (!options_.replace_invalid)
        reject("{}: the text is not UTF-8 at byte {}; {}", record.where, at, kInvalidUtf8Advice);
      record.text = replace_invalid_utf8(*record.text);
    }
    document.text = std::move(*record.text);
    return true;
  }

  CorpusOptions options_;
  std::vector<std::string> files_;
  std::vector<CorpusColumn> columns_;
  RecordReaderPointer reader_;
  std::size_t next_file_ = 0;
  std::int64_t row_ = 0;
  Counts counts_;
};

}  // namespace

ExampleId ExampleId::from_number(std::int64_t value) {
  return {fmt::format("{}", value), value};
}

ExampleId ExampleId::from_number(std::uint64_t value) {
  if (!std::in_range<std::int64_t>(value)) return from_string(fmt::format("{}", value));
  return from_number(static_cast<std::int64_t>(value));
}

ExampleId ExampleId::from_number(double value) {
  if (std::trunc(value) != value || std::isinf(value)) return from_string(fmt::format("{}", value));
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value < -kLimit || value >= kLimit) return from_string(fmt::format("{:.0f}", value));
  return from_number(static_cast<std::int64_t>(value));
}

ExampleId ExampleId::from_digits(std::string text) {
  const auto value = parse_number<std::int64_t>(text);
  return {std::move(text), value};
}

std::int64_t derive_example_key(const ExampleId& id) {
  return id.integer ? *id.integer : static_cast<std::int64_t>(blake2b_64(id.text));
}

RecordReaderPointer make_csv_reader(std::string_view text, const std::string& where,
                                    const RecordColumns& columns) {
  return std::make_unique<CsvReader>(text, where, columns);
}

void throw_missing_column(const std::string& where, const std::string& column,
                          const std::vector<CorpusColumn>& columns) {
  const auto names = to_vector(columns, &CorpusColumn::name);
  const std::string near = closest_spelling(column, names);
  const auto list = fmt::format("{}", fmt::join(names, ", "));
  reject("{}: there is no column '{}'; the columns are: {}{}", where, column,
         list.empty() ? "none" : list,
         near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

Corpus::~Corpus() = default;

std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options) {
  return translate_exceptions(
      [&]() -> std::unique_ptr<Corpus> { return std::make_unique<FileCorpus>(options); });
}

}  // namespace qkscope
