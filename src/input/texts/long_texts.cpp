// Implements write_long_texts() of qkscope/texts.h.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/arrow_error.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "input/texts/dataset_files.h"
#include "qkscope/experimental/log.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

struct TextRow {
  std::variant<std::int64_t, std::string> id;
  std::string text;
  std::int64_t tokens = 0;
};

// Writes a text dataset row by row.
class TextWriter {
 public:
  virtual ~TextWriter() = default;
  virtual void add(TextRow row) = 0;
  // Moves the complete file to its final name. Without finish() no file remains.
  virtual void finish() = 0;
};

class JsonLinesWriter : public TextWriter {
 public:
  JsonLinesWriter(const std::string& path, std::string id_column)
      : file_(path), id_column_(std::move(id_column)) {}

  void add(TextRow row) override {
    Json line;
    std::visit([&](auto& id) { line[id_column_] = std::move(id); }, row.id);
    line["text"] = std::move(row.text);
    line["tokens"] = row.tokens;
    file_.write(line.dump() + "\n");
  }

  void finish() override { file_.commit(); }

 private:
  OutputFile file_;
  std::string id_column_;
};

// Adapts OutputFile to Arrow, so that the Parquet file appears atomically.
class FileStream : public arrow::io::OutputStream {
 public:
  explicit FileStream(OutputFile& file) : file_(file) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override {
    return static_cast<std::int64_t>(file_.bytes_written());
  }
  arrow::Status Write(const void* data, std::int64_t size) override {
    try {
      file_.write(std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(size)));
      return arrow::Status::OK();
    } catch (const Error& error) {
      return arrow::Status::IOError(error.what());
    }
  }

 private:
  OutputFile& file_;
  bool closed_ = false;
};

class ParquetTextWriter : public TextWriter {
 public:
  ParquetTextWriter(const std::string& path, std::string id_column)
      : path_(path),
        id_column_(std::move(id_column)),
        file_(path),
        stream_(std::make_shared<FileStream>(file_)) {}

  ~ParquetTextWriter() override {
    writer_.reset();
    (void)stream_->Close();
  }

  void add(TextRow row) override {
    const bool integer = std::holds_alternative<std::int64_t>(row.id);
    if (!integers_) open(integer);
    if (*integers_ != integer)
      bad_input(
          "{}: some ids are integers and some are not, which a Parquet column cannot hold; write "
          "a .jsonl file",
          path_);
    held_ += row.text.size();
    rows_.push_back(std::move(row));
    if (held_ >= kRowGroupBytes) write_rows();
  }

  void finish() override {
    if (!integers_) open(true);
    write_rows();
    check(writer_->Close());
    writer_.reset();
    file_.commit();
  }

 private:
  static constexpr std::size_t kRowGroupBytes = 32 << 20;

  void check(const arrow::Status& status) const {
    check_arrow(status, "writing " + path_, ErrorKind::failure);
  }

  // The first id determines the column type.
  void open(bool integers) {
    integers_ = integers;
    schema_ = arrow::schema({arrow::field(id_column_, integers ? arrow::int64() : arrow::utf8()),
                             arrow::field("text", arrow::large_utf8()),
                             arrow::field("tokens", arrow::int64())});
    const auto properties =
        parquet::WriterProperties::Builder().compression(parquet::Compression::ZSTD)->build();
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    writer_ =
        value_or_throw(parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(),
                                                        stream_, properties, arrow_properties),
                       "writing " + path_, ErrorKind::failure);
  }

  template <typename Builder, typename Of>
  std::shared_ptr<arrow::Array> column(const Of& of) const {
    Builder builder;
    for (const auto& row : rows_) check(builder.Append(of(row)));
    return value_or_throw(builder.Finish(), "writing " + path_, ErrorKind::failure);
  }

  std::shared_ptr<arrow::Array> ids() const {
    if (*integers_)
      return column<arrow::Int64Builder>(
          [](const TextRow& row) { return std::get<std::int64_t>(row.id); });
    return column<arrow::StringBuilder>(
        [](const TextRow& row) -> const std::string& { return std::get<std::string>(row.id); });
  }

  void write_rows() {
    if (rows_.empty()) return;
    const auto texts = column<arrow::LargeStringBuilder>(
        [](const TextRow& row) -> const std::string& { return row.text; });
    const auto tokens = column<arrow::Int64Builder>([](const TextRow& row) { return row.tokens; });
    const auto table = arrow::Table::Make(schema_, {ids(), texts, tokens}, std::ssize(rows_));
    check(writer_->WriteTable(*table, std::ssize(rows_)));
    rows_.clear();
    held_ = 0;
  }

  std::string path_;
  std::string id_column_;
  OutputFile file_;
  std::shared_ptr<FileStream> stream_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
  std::optional<bool> integers_;
  std::vector<TextRow> rows_;
  std::size_t held_ = 0;
};

std::unique_ptr<TextWriter> open_text_writer(const std::string& path,
                                             const std::string& id_column) {
  if (id_column == "text" || id_column == "tokens")
    bad_input("{}: the ids cannot be in a column named '{}' too", path, id_column);
  if (path.ends_with(".jsonl")) return std::make_unique<JsonLinesWriter>(path, id_column);
  if (path.ends_with(".parquet")) return std::make_unique<ParquetTextWriter>(path, id_column);
  bad_input("{}: not a name for a dataset; expected one that ends in .parquet or .jsonl", path);
}

constexpr std::size_t kBlockBytes = 32 << 20;  // bytes of text held in memory at a time

// Returns the substring of characters [begin, end).
std::string_view characters(std::string_view text, std::int64_t begin, std::int64_t end) {
  const auto skip = [&](std::size_t at, std::int64_t count) {
    for (; count > 0 && at < text.size(); --count) at += utf8::sequence_length(text[at]);
    return std::min(at, text.size());
  };
  const auto first = skip(0, begin);
  return text.substr(first, skip(first, end - begin) - first);
}

// A text after truncation, with its number of tokens.
struct TruncatedText {
  std::string text;
  std::int64_t tokens = 0;
  bool cut = false;
};

TruncatedText truncate(const Tokenizer& tokenizer, const LongTextOptions& options,
                       std::string text) {
  const auto found = tokenizer.encode(text, {.add_special_tokens = options.special_tokens,
                                             .max_length = options.max_tokens,
                                             .offsets = options.max_tokens > 0});
  if (!found.truncated) return {std::move(text), std::ssize(found.ids), false};
  // Special tokens have empty offsets; the tokenizer may truncate on either side.
  std::int64_t begin = INT64_MAX;
  std::int64_t end = 0;
  for (const auto& offset : found.offsets) {
    if (offset.begin == offset.end) continue;
    begin = std::min(begin, offset.begin);
    end = std::max(end, offset.end);
  }
  std::string part(characters(text, std::min(begin, end), end));
  const auto again = tokenizer.encode(part, {.add_special_tokens = options.special_tokens});
  return {std::move(part), std::ssize(again.ids), true};
}

// Integer ids stay integers, because the sampling seed of any other id is its hash.
std::variant<std::int64_t, std::string> id_of(const Document& document) {
  const auto id = ExampleId::from_digits(document.source_id);
  if (id.integer == document.example_key) return *id.integer;
  return document.source_id;
}

void check_options(const LongTextOptions& options) {
  if (options.min_tokens < 1)
    bad_input("a least number of {} tokens: expected 1 or more", options.min_tokens);
  if (options.max_tokens > 0 && options.max_tokens < options.min_tokens)
    bad_input("texts of at least {} tokens, cut to {}: expected a cut that leaves enough",
              options.min_tokens, options.max_tokens);
}

std::vector<Document> next_block(Corpus& corpus) {
  std::vector<Document> block;
  std::size_t held = 0;
  for (Document document; held < kBlockBytes && corpus.next(document);) {
    held += document.text.size();
    block.push_back(std::move(document));
  }
  return block;
}

}  // namespace

LongTextResult write_long_texts(Corpus& corpus, const Tokenizer& tokenizer,
                                const LongTextOptions& options) {
  return translate_exceptions([&] {
    check_options(options);
    const auto writer = open_text_writer(options.out, options.id_column);
    Progress progress({.what = "reading", .unit = "texts", .quiet = options.quiet});
    LongTextResult result;
    const auto enough = [&] { return options.keep > 0 && result.kept == options.keep; };
    while (!enough()) {
      auto block = next_block(corpus);
      if (block.empty()) break;
      std::vector<TruncatedText> texts(block.size());
      parallel_for(std::ssize(block), [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        texts[at] = truncate(tokenizer, options, std::move(block[at].text));
      });
      for (std::size_t i = 0; i < block.size() && !enough(); ++i) {
        ++result.read;
        auto& text = texts[i];
        // A truncated text was long enough, even if re-encoding it gives fewer tokens.
        if (!text.cut && text.tokens < options.min_tokens) {
          ++result.too_short;
          result.longest = std::max(result.longest, text.tokens);
          continue;
        }
        ++result.kept;
        result.cut += text.cut;
        result.tokens += text.tokens;
        writer->add({id_of(block[i]), std::move(text.text), text.tokens});
      }
      progress.update(result.read);
      if (options.stop != nullptr && options.stop->load()) return result;
    }
    progress.finish();
    if (result.kept == 0)
      bad_input("none of {} texts has {} tokens; the longest has {}", result.read,
                options.min_tokens, result.longest);
    writer->finish();
    result.finished = true;
    return result;
  });
}

}  // namespace qkscope
