#include "input/texts/text_writer.h"

#include <optional>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include "base/core/error.h"
#include "base/io/arrow_error.h"
#include "base/io/json.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

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
    return static_cast<std::int64_t>(file_.written());
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
    writer_ = take_arrow(parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(),
                                                          stream_, properties, arrow_properties),
                         "writing " + path_, ErrorKind::failure);
  }

  template <typename Builder, typename Of>
  std::shared_ptr<arrow::Array> column(const Of& of) const {
    Builder builder;
    for (const auto& row : rows_) check(builder.Append(of(row)));
    return take_arrow(builder.Finish(), "writing " + path_, ErrorKind::failure);
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

}  // namespace

std::unique_ptr<TextWriter> open_text_writer(const std::string& path,
                                             const std::string& id_column) {
  if (id_column == "text" || id_column == "tokens")
    bad_input("{}: the ids cannot be in a column named '{}' too", path, id_column);
  if (path.ends_with(".jsonl")) return std::make_unique<JsonLinesWriter>(path, id_column);
  if (path.ends_with(".parquet")) return std::make_unique<ParquetTextWriter>(path, id_column);
  bad_input("{}: not a name for a dataset; expected one that ends in .parquet or .jsonl", path);
}

}  // namespace qkscope
