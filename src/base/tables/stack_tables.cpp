#include "base/tables/stack_tables.h"

#include <memory>

#include <arrow/api.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/arrow_error.h"
#include "base/tables/arrow_columns.h"
#include "base/tables/parquet_stream.h"

namespace qkscope {
namespace {

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
