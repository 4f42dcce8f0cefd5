#include "base/core/error.h"
#include "base/core/utf8.h"
#include "input/texts/record_reader.h"
#include "input/texts/split_files.h"
#include "qkscope/texts.h"

namespace qkscope {
namespace {

class FileCorpus : public Corpus {
 public:
  explicit FileCorpus(const CorpusOptions& options)
      : options_(options), files_(find_corpus_files(options)) {
    if (options.shard_count < 1 || options.shard_index < 0 ||
        options.shard_index >= options.shard_count) {
      bad_input("shard {}/{}: the first number must be from 0 to one less than the second",
                options.shard_index, options.shard_count);
    }
    open_next_file();
    columns_ = reader_->columns();
  }

  bool next(Document& document) override {
    return translate_exceptions([&] { return read_next(document); });
  }

  const Counts& counts() const override { return counts_; }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<CorpusColumn>& columns() const override { return columns_; }

 private:
  bool read_next(Document& document) {
    Record record;
    while (next_record(record)) {
      const std::int64_t row = row_++;
      if (row % options_.shard_count != options_.shard_index) continue;
      ++counts_.rows;
      if (!take_text(record, document)) continue;
      ++counts_.documents;
      document.row = row;
      const ExampleId id = options_.id_column ? std::move(record.id) : ExampleId::from(row);
      document.example_key = options_.number_rows ? row : example_key(id);
      document.source_id = id.text;
      return true;
    }
    if (row_ == 0) bad_input("{}: the dataset has no rows", options_.path);
    if (counts_.documents == 0 && counts_.rows > 0)
      bad_input("{}: none of the {} rows has a text in column '{}'", options_.path, counts_.rows,
                options_.text_column);
    return false;
  }

  void open_next_file() {
    reader_ = open_records(files_[next_file_++],
                           {options_.text_column, options_.id_column, options_.replace_invalid});
  }

  bool next_record(Record& record) {
    if (options_.max_samples > 0 && row_ >= options_.max_samples) return false;
    while (!reader_->next(record)) {
      if (next_file_ == files_.size()) return false;
      open_next_file();
    }
    return true;
  }

  bool take_text(Record& record, Document& document) {
    if (!record.text || record.text->empty()) {
      ++(record.text ? counts_.empty_texts : counts_.null_texts);
      return false;
    }
    if (const auto at = find_invalid_utf8(*record.text); at != std::string::npos) {
      if (!options_.replace_invalid)
        bad_input("{}: the text is not UTF-8 at byte {}; {}", record.where, at, kInvalidUtf8Advice);
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

Corpus::~Corpus() = default;

std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options) {
  return translate_exceptions(
      [&]() -> std::unique_ptr<Corpus> { return std::make_unique<FileCorpus>(options); });
}

}  // namespace qkscope
