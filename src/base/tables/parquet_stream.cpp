#include "base/tables/parquet_stream.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/arrow_error.h"
#include "base/io/output_file.h"
#include "base/tables/arrow_columns.h"

namespace qkscope {
namespace {

using Column = Table::Column;

// Calls function(a, b) for each pair of value vectors of two columns of the same type.
template <typename Other, typename Function>
void for_values(Column& a, Other& b, const Function& function) {
  function(a.integers, b.integers);
  function(a.reals, b.reals);
  function(a.texts, b.texts);
}

bool same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Column& x, const Column& y) {
    return x.name == y.name && x.type == y.type;
  });
}

// One input file.
class StackedFile {
 public:
  explicit StackedFile(const TableFile& file) : file_(file), reader_(open_parquet(file.path)) {
    check_parquet_read(reader_->GetSchema(&schema_), file.path);
  }

  const std::string& path() const { return file_.path; }
  const arrow::Schema& schema() const { return *schema_; }
  int groups() const { return reader_->num_row_groups(); }

  // Reads a row group with the wanted columns: the first holds the file's name, missing ones null.
  std::shared_ptr<arrow::Table> read(int group,
                                     const std::shared_ptr<arrow::Schema>& wanted) const {
    std::shared_ptr<arrow::Table> rows;
    check_parquet_read(reader_->RowGroup(group)->ReadTable(&rows), file_.path);
    const auto count = rows->num_rows();
    std::vector<std::shared_ptr<arrow::ChunkedArray>> columns;
    for (int i = 0; i < wanted->num_fields(); ++i) {
      const auto& field = wanted->field(i);
      auto column = i == 0 ? nullptr : rows->GetColumnByName(field->name());
      if (!column) column = std::make_shared<arrow::ChunkedArray>(fill(i == 0, *field, count));
      columns.push_back(std::move(column));
    }
    return arrow::Table::Make(wanted, std::move(columns), count);
  }

 private:
  std::shared_ptr<arrow::Array> fill(bool with_name, const arrow::Field& field,
                                     std::int64_t count) const {
    const auto doing = "stacking " + file_.path;
    return with_name
               ? take_arrow(arrow::MakeArrayFromScalar(arrow::StringScalar(file_.name), count),
                            doing, ErrorKind::failure)
               : take_arrow(arrow::MakeArrayOfNull(field.type(), count), doing, ErrorKind::failure);
  }

  const TableFile& file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
};

// The union of the columns of all files, matched by name.
class JoinedColumns {
 public:
  explicit JoinedColumns(const std::string& column)
      : fields_{arrow::field(column, arrow::utf8())}, first_(1) {}

  void add(const StackedFile& file) {
    for (const auto& field : file.schema().fields()) {
      const auto& name = field->name();
      const auto place = find(name);
      if (place == 0)
        bad_input("{}: it has a column {}, which would say where the rows are from", file.path(),
                  in_quotes(name));
      if (place == fields_.size()) {
        fields_.push_back(arrow::field(name, field->type()));
        first_.push_back(&file.path());
      } else if (!fields_[place]->type()->Equals(field->type())) {
        bad_input(
            "{}: its column {} is {}, that of {} is {}: they do not stand for the same; "
            "analyse both with one version of the program",
            file.path(), in_quotes(name), field->type()->ToString(), *first_[place],
            fields_[place]->type()->ToString());
      }
    }
  }

  std::shared_ptr<arrow::Schema> schema() const { return arrow::schema(fields_); }

 private:
  std::size_t find(const std::string& name) const {
    std::size_t place = 0;
    while (place < fields_.size() && fields_[place]->name() != name) ++place;
    return place;
  }

  std::vector<std::shared_ptr<arrow::Field>> fields_;
  std::vector<const std::string*> first_;  // (fields): path of the first file with the column
};

std::shared_ptr<arrow::Schema> joined_columns(const std::string& column,
                                              const std::vector<TableFile>& files) {
  JoinedColumns columns(column);
  for (const auto& file : files)
    reading_parquet(file.path, [&] { columns.add(StackedFile(file)); });
  return columns.schema();
}

}  // namespace

// An open Parquet file. `path` is the name in error messages, `file` the path on disk.
struct ParquetOutput {
  ParquetOutput(std::string name, const std::string& file)
      : path(std::move(name)), stream(take(arrow::io::FileOutputStream::Open(file))) {}

  void write_schema(const arrow::Schema& schema) {
    writer = take(parquet::arrow::FileWriter::Open(schema, table_memory(), stream,
                                                   parquet_writer_properties(schema)));
  }
  void append(const arrow::Table& rows) const {
    check(writer->WriteTable(rows, std::max<std::int64_t>(1, rows.num_rows())));
  }
  void close() const {
    if (writer) check(writer->Close());
    check(stream->Close());
  }

  void check(const arrow::Status& status) const {
    check_arrow(status, "writing " + path, ErrorKind::failure);
  }
  template <typename T>
  T take(arrow::Result<T> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }

  std::string path;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
};

ParquetTableWriter::ParquetTableWriter(std::string path)
    : output_(std::make_unique<ParquetOutput>(path, path)) {}

ParquetTableWriter::~ParquetTableWriter() = default;

void ParquetTableWriter::append(const Table& rows) {
  const auto table = to_arrow(rows);
  if (!output_->writer) output_->write_schema(*table->schema());
  if (rows.rows() > 0) output_->append(*table);
}

void ParquetTableWriter::finish() {
  output_->close();
  sync_file(output_->path);
}

AtomicParquetFile::AtomicParquetFile(const std::string& path, const arrow::Schema& schema)
    : temporary_(temporary_name(path)), output_(std::make_unique<ParquetOutput>(path, temporary_)) {
  output_->write_schema(schema);
}

AtomicParquetFile::~AtomicParquetFile() {
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void AtomicParquetFile::append(const arrow::Table& rows) {
  output_->append(rows);
}

void AtomicParquetFile::finish() {
  output_->close();
  move_into_place(temporary_, output_->path);
  temporary_.clear();
}

struct ParquetTableReader::State {
  std::string path;
  std::unique_ptr<parquet::arrow::FileReader> reader;
};

ParquetTableReader::ParquetTableReader(const std::string& path)
    : state_(std::make_unique<State>(State{path, open_parquet(path)})) {}

ParquetTableReader::~ParquetTableReader() = default;

int ParquetTableReader::groups() const {
  return state_->reader->num_row_groups();
}

Table ParquetTableReader::read(int group) const {
  std::shared_ptr<arrow::Table> rows;
  check_parquet_read(state_->reader->RowGroup(group)->ReadTable(&rows), state_->path);
  std::vector<Table::Column> columns;
  for (int i = 0; i < rows->num_columns(); ++i) {
    const auto& name = rows->field(i)->name();
    columns.push_back(from_arrow(name, *rows->column(i), NullIntegers::keep,
                                 fmt::format("{}: column '{}'", state_->path, name)));
  }
  return Table(std::move(columns));
}

GrowingTable::GrowingTable(std::string path, bool csv) : path_(std::move(path)) {
  if (csv) csv_.emplace(path_ + ".csv");
}

bool GrowingTable::append(std::vector<Column> part) {
  const bool first = !std::exchange(begun_, true);
  if (first)
    for (const auto& column : part) waiting_.push_back({column.name, column.type, {}, {}, {}});
  if (!same_columns(waiting_, part)) return false;
  const Table table(std::move(part));
  if (csv_) {
    const auto text = table.to_csv();
    csv_->write(std::string_view(text).substr(first ? 0 : text.find('\n') + 1));
  }
  for (std::size_t i = 0; i < waiting_.size(); ++i)
    for_values(waiting_[i], table.columns()[i], [](auto& all, const auto& more) {
      all.insert(all.end(), more.begin(), more.end());
    });
  rows_ += table.rows();
  while (rows_ >= kTableRowGroup) write_group(kTableRowGroup);
  return true;
}

// Writes the first `rows` waiting rows as a row group.
void GrowingTable::write_group(std::int64_t rows) {
  std::vector<Column> group;
  group.reserve(waiting_.size());
  for (auto& column : waiting_) {
    group.push_back({column.name, column.type, {}, {}, {}});
    for_values(column, group.back(), [&](auto& from, auto& to) {
      const auto end = from.begin() + std::min<std::ptrdiff_t>(rows, std::ssize(from));
      to.assign(std::make_move_iterator(from.begin()), std::make_move_iterator(end));
      from.erase(from.begin(), end);
    });
  }
  const auto table = to_arrow(Table(std::move(group)));
  if (!parquet_)
    parquet_ = std::make_unique<AtomicParquetFile>(path_ + ".parquet", *table->schema());
  parquet_->append(*table);
  rows_ -= rows;
}

void GrowingTable::finish() {
  if (rows_ > 0 || !parquet_) write_group(rows_);
  if (csv_) csv_->commit();
  parquet_->finish();
}

void check_stack(const std::string& column, const std::vector<TableFile>& files) {
  joined_columns(column, files);
}

std::int64_t stack_tables(const std::string& column, const std::vector<TableFile>& files,
                          const std::string& path) {
  const auto schema = joined_columns(column, files);
  AtomicParquetFile writer(path, *schema);
  std::int64_t rows = 0;
  for (const auto& file : files)
    reading_parquet(file.path, [&] {
      const StackedFile open(file);
      for (int group = 0; group < open.groups(); ++group) {
        const auto part = open.read(group, schema);
        if (part->num_rows() > 0) writer.append(*part);
        rows += part->num_rows();
      }
    });
  writer.finish();
  return rows;
}

}  // namespace qkscope
