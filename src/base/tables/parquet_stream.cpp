#include "base/tables/parquet_stream.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/arrow_error.h"
#include "base/tables/arrow_columns.h"

namespace qkscope {
namespace {

using Column = Table::Column;

// Returns the schema of the output of concat_tables(): a text column named `column`, then the union
// of the columns of all files, matched by name.
std::shared_ptr<arrow::Schema> concat_schema(const std::string& column,
                                             const std::vector<NamedTableFile>& files) {
  arrow::FieldVector fields = {arrow::field(column, arrow::utf8())};
  std::vector<std::string> origins = {""};  // (fields): path of the first file with the column
  const auto add_field = [&](const std::shared_ptr<arrow::Field>& field, const std::string& path) {
    const auto known = std::ranges::find(fields, field->name(), &arrow::Field::name);
    const auto place = static_cast<std::size_t>(known - fields.begin());
    if (place == 0)
      reject("{}: it has a column {}, which would say where the rows are from", path,
             quote_text(field->name()));
    if (place == fields.size()) {
      fields.push_back(arrow::field(field->name(), field->type()));
      origins.push_back(path);
    } else if (!fields[place]->type()->Equals(field->type())) {
      reject(
          "{}: its column {} is {}, that of {} is {}: they do not stand for the same; "
          "analyse both with one version of the program",
          path, quote_text(field->name()), field->type()->ToString(), origins[place],
          fields[place]->type()->ToString());
    }
  };
  for (const auto& file : files)
    translate_parquet_errors(file.path, [&] {
      std::shared_ptr<arrow::Schema> schema;
      check_parquet_status(open_parquet(file.path)->GetSchema(&schema), file.path);
      for (const auto& field : schema->fields()) add_field(field, file.path);
    });
  return arrow::schema(fields);
}

// Reads a row group and prepends a text column that holds file.name in every row. Columns of the
// schema `wanted` that the file does not have are null.
std::shared_ptr<arrow::Table> read_named_row_group(parquet::arrow::FileReader& reader, int group,
                                                   const NamedTableFile& file,
                                                   const std::shared_ptr<arrow::Schema>& wanted) {
  const auto unwrap_result = [&](auto result) {
    return value_or_throw(std::move(result), "stacking " + file.path, ErrorKind::failure);
  };
  std::shared_ptr<arrow::Table> rows;
  check_parquet_status(reader.RowGroup(group)->ReadTable(&rows), file.path);
  const auto names =
      unwrap_result(arrow::MakeArrayFromScalar(arrow::StringScalar(file.name), rows->num_rows()));
  rows = unwrap_result(
      rows->AddColumn(0, wanted->field(0), std::make_shared<arrow::ChunkedArray>(names)));
  return unwrap_result(arrow::PromoteTableToSchema(rows, wanted));
}

}  // namespace

// An open Parquet file. `path` is the name in error messages, `file` the path on disk.
struct ParquetOutput {
  ParquetOutput(std::string name, const std::string& file)
      : path(std::move(name)), stream(unwrap(arrow::io::FileOutputStream::Open(file))) {}

  void write_schema(const arrow::Schema& schema, bool keeps_types = false) {
    parquet::ArrowWriterProperties::Builder builder;
    if (keeps_types) builder.store_schema();
    writer = unwrap(parquet::arrow::FileWriter::Open(
        schema, table_memory_pool(), stream, parquet_writer_properties(schema), builder.build()));
  }
  void append(const arrow::Table& rows) const {
    check_status(writer->WriteTable(rows, std::max<std::int64_t>(1, rows.num_rows())));
  }
  void close() const {
    if (writer) check_status(writer->Close());
    check_status(stream->Close());
  }

  void check_status(const arrow::Status& status) const {
    check_arrow_status(status, "writing " + path, ErrorKind::failure);
  }
  template <typename T>
  T unwrap(arrow::Result<T> result) const {
    return value_or_throw(std::move(result), "writing " + path, ErrorKind::failure);
  }

  std::string path;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
};

ParquetTableWriter::ParquetTableWriter(const std::string& path)
    : output_(std::make_unique<ParquetOutput>(path, path)) {}

ParquetTableWriter::~ParquetTableWriter() = default;

void ParquetTableWriter::append(const Table& rows) {
  const auto table = to_arrow_table(rows);
  if (!output_->writer) output_->write_schema(*table->schema());
  if (rows.rows() > 0) output_->append(*table);
}

void ParquetTableWriter::finish() {
  output_->close();
  fsync_file(output_->path);
}

AtomicParquetFile::AtomicParquetFile(const std::string& path, const arrow::Schema& schema,
                                     bool keeps_types)
    : lock_(create_temporary_file(path, temporary_)),
      output_(std::make_unique<ParquetOutput>(path, temporary_)) {
  output_->write_schema(schema, keeps_types);
}

AtomicParquetFile::~AtomicParquetFile() {
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void AtomicParquetFile::append(const arrow::Table& rows) {
  output_->append(rows);
}

void AtomicParquetFile::finish() {
  output_->close();
  rename_durably(temporary_, output_->path);
  temporary_.clear();
}

bool have_same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
  return std::ranges::equal(
      a, b, [](const Column& x, const Column& y) { return x.name == y.name && x.type == y.type; });
}

ParquetTableReader::ParquetTableReader(const std::string& path)
    : path_(path), reader_(open_parquet(path)) {}

ParquetTableReader::~ParquetTableReader() = default;

int ParquetTableReader::row_group_count() const {
  return reader_->num_row_groups();
}

Table ParquetTableReader::read_row_group(int group) const {
  std::shared_ptr<arrow::Table> rows;
  check_parquet_status(reader_->RowGroup(group)->ReadTable(&rows), path_);
  std::vector<Table::Column> columns;
  for (int i = 0; i < rows->num_columns(); ++i) {
    const auto& name = rows->field(i)->name();
    columns.push_back(to_table_column(name, *rows->column(i), NullIntegerPolicy::keep,
                                      fmt::format("{}: column '{}'", path_, name)));
  }
  return Table(std::move(columns));
}

TableFileAppender::TableFileAppender(std::string path, bool csv) : path_(std::move(path)) {
  if (csv) csv_.emplace(path_ + ".csv");
}

bool TableFileAppender::append(std::vector<Column> part) {
  const Table table(std::move(part));
  const auto rows = to_arrow_table(table);
  if (waiting_ && !waiting_->schema()->Equals(*rows->schema())) return false;
  if (csv_) {
    const auto text = table.to_csv();
    csv_->write(std::string_view(text).substr(waiting_ ? text.find('\n') + 1 : 0));
  }
  waiting_ = !waiting_ ? rows
                       : value_or_throw(arrow::ConcatenateTables({waiting_, rows}),
                                        "writing " + path_, ErrorKind::failure);
  while (waiting_->num_rows() >= kTableRowGroup) write_row_group(kTableRowGroup);
  return true;
}

// Writes the first `rows` buffered rows as a row group.
void TableFileAppender::write_row_group(std::int64_t rows) {
  const auto group = value_or_throw(waiting_->Slice(0, rows)->CombineChunks(table_memory_pool()),
                                    "writing " + path_, ErrorKind::failure);
  if (!parquet_)
    parquet_ = std::make_unique<AtomicParquetFile>(path_ + ".parquet", *group->schema());
  parquet_->append(*group);
  waiting_ = waiting_->Slice(rows);
}

void TableFileAppender::finish() {
  if (!waiting_) waiting_ = to_arrow_table(Table());
  if (waiting_->num_rows() > 0 || !parquet_) write_row_group(waiting_->num_rows());
  if (csv_) csv_->commit();
  parquet_->finish();
}

void check_compatible_columns(const std::string& column, const std::vector<NamedTableFile>& files) {
  concat_schema(column, files);
}

std::int64_t concat_tables(const std::string& column, const std::vector<NamedTableFile>& files,
                           const std::string& path) {
  const auto schema = concat_schema(column, files);
  AtomicParquetFile writer(path, *schema);
  std::int64_t rows = 0;
  for (const auto& file : files)
    translate_parquet_errors(file.path, [&] {
      const auto reader = open_parquet(file.path);
      for (int group = 0; group < reader->num_row_groups(); ++group) {
        const auto part = read_named_row_group(*reader, group, file, schema);
        if (part->num_rows() > 0) writer.append(*part);
        rows += part->num_rows();
      }
    });
  writer.finish();
  return rows;
}

}  // namespace qkscope
