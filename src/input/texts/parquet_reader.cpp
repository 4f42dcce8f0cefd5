#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include "base/core/error.h"
#include "base/io/arrow_error.h"
#include "base/io/file_memory_pool.h"
#include "base/io/folder.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBatchRows = 64;  // a single text can take megabytes

// Reports every Arrow error as bad input, because the file is at fault.
void check_status(const arrow::Status& status, const std::string& path) {
  check_arrow_status(status, path + ": cannot read the Parquet file", ErrorKind::bad_input);
}

template <typename T>
T check_status(arrow::Result<T> result, const std::string& path) {
  return value_or_throw(std::move(result), path + ": cannot read the Parquet file",
                        ErrorKind::bad_input);
}

bool is_text_type(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY)
    return is_text_type(*static_cast<const arrow::DictionaryType&>(type).value_type());
  return arrow::is_string(type.id());
}

// Returns the string at row `i`, or nullopt for null.
std::optional<std::string> read_text_value(const arrow::Array& array, std::int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  if (array.type_id() == arrow::Type::DICTIONARY) {
    const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
    return read_text_value(*dictionary.dictionary(), dictionary.GetValueIndex(i));
  }
  if (array.type_id() == arrow::Type::LARGE_STRING)
    return static_cast<const arrow::LargeStringArray&>(array).GetString(i);
  return static_cast<const arrow::StringArray&>(array).GetString(i);
}

// Reinterprets strings as binary without a copy, because UTF-8 is validated later for each text.
std::shared_ptr<arrow::Array> as_binary_array(const std::shared_ptr<arrow::Array>& array,
                                              const std::string& path) {
  if (array->type_id() == arrow::Type::DICTIONARY) {
    const auto& coded = static_cast<const arrow::DictionaryArray&>(*array);
    const auto values = as_binary_array(coded.dictionary(), path);
    return check_status(
        arrow::DictionaryArray::FromArrays(
            arrow::dictionary(coded.indices()->type(), values->type()), coded.indices(), values),
        path);
  }
  const bool large = array->type_id() == arrow::Type::LARGE_STRING;
  return check_status(array->View(large ? arrow::large_binary() : arrow::binary()), path);
}

ExampleId read_example_id(const arrow::Array& array, std::int64_t i, const std::string& path) {
  if (array.IsNull(i)) return ExampleId::from_string("None");
  if (is_text_type(*array.type())) return ExampleId::from_string(*read_text_value(array, i));
  const auto scalar = check_status(array.GetScalar(i), path);
  const arrow::Type::type type = array.type_id();
  if (arrow::is_integer(type)) return ExampleId::from_digits(scalar->ToString());
  if (type == arrow::Type::BOOL || type == arrow::Type::FLOAT || type == arrow::Type::DOUBLE) {
    const auto number = check_status(scalar->CastTo(arrow::float64()), path);
    return ExampleId::from_number(static_cast<const arrow::DoubleScalar&>(*number).value);
  }
  return ExampleId::from_string(scalar->ToString());
}

class ParquetReader : public RecordReader {
 public:
  ParquetReader(const std::string& path, const RecordColumns& columns) : path_(path) {
    check_regular_file(path);
    const auto file = check_status(arrow::io::ReadableFile::Open(path), path);
    parquet::arrow::FileReaderBuilder builder;
    pool_ = std::make_unique<BoundedMemoryPool>(arrow::default_memory_pool(),
                                                check_status(file->GetSize(), path));
    check_status(builder.Open(file, parquet::ReaderProperties(pool_.get())), path);
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kBatchRows);
    check_status(builder.memory_pool(pool_.get())->properties(properties)->Build(&file_), path);
    check_status(file_->GetSchema(&schema_), path);
    std::vector<int> wanted = {column_index_of(columns.text)};
    const auto& type = *schema_->field(wanted[0])->type();
    if (!is_text_type(type))
      reject("{}: column '{}' holds {}, expected strings", path, columns.text, type.ToString());
    text_ = columns.text;
    id_ = columns.id;
    if (columns.id) wanted.push_back(column_index_of(*columns.id));
    open_batch_reader(wanted);
  }

  bool read_record(CorpusRecord& record) override {
    while (batch_ == nullptr || at_ == batch_->num_rows()) {
      translate_parquet_errors(path_, [&] {
        check_status(batches_->ReadNext(&batch_), path_);
        if (batch_ == nullptr) return;
        // In a corrupt file, offsets and dictionary indices may be out of bounds.
        for (const auto& column : batch_->columns())
          check_status((is_text_type(*column->type()) ? as_binary_array(column, path_) : column)
                           ->ValidateFull(),
                       path_);
      });
      at_ = 0;
      if (batch_ == nullptr) return false;
    }
    record.where = fmt::format("{}: row {}", path_, row_);
    record.text = read_text_value(*batch_->GetColumnByName(text_), at_);
    if (id_) record.id = read_example_id(*batch_->GetColumnByName(*id_), at_, path_);
    ++at_;
    ++row_;
    return true;
  }

  std::vector<CorpusColumn> columns() const override {
    std::vector<CorpusColumn> columns;
    for (const auto& field : schema_->fields())
      columns.push_back({field->name(), field->type()->ToString()});
    return columns;
  }

 private:
  int column_index_of(const std::string& name) const {
    const int index = schema_->GetFieldIndex(name);
    if (index < 0) throw_missing_column(path_, name, columns());
    return index;
  }

  // Opens a reader of the given fields. Arrow selects leaf columns; nested fields have several.
  void open_batch_reader(const std::vector<int>& fields) {
    std::vector<int> leaves, groups;
    const auto& leaf_schema = *file_->parquet_reader()->metadata()->schema();
    for (int leaf = 0; leaf < leaf_schema.num_columns(); ++leaf) {
      const std::string root = leaf_schema.GetColumnRoot(leaf)->name();
      for (const int field : fields)
        if (schema_->field(field)->name() == root) leaves.push_back(leaf);
    }
    for (int group = 0; group < file_->num_row_groups(); ++group) groups.push_back(group);
    batches_ = check_status(file_->GetRecordBatchReader(groups, leaves), path_);
    for (const int field : fields)  // a group without fields has no leaves
      if (const auto& column = *schema_->field(field);
          batches_->schema()->GetFieldIndex(column.name()) < 0)
        reject("{}: column '{}' holds {}, which has no values", path_, column.name(),
               column.type()->ToString());
  }

  std::string path_;
  std::unique_ptr<BoundedMemoryPool> pool_;  // must outlive the members below, which use it
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::string text_;
  std::optional<std::string> id_;
  std::int64_t at_ = 0;   // row in the batch
  std::int64_t row_ = 0;  // row in the file
};

}  // namespace

RecordReaderPointer open_parquet_records(const std::string& path, const RecordColumns& columns) {
  return translate_parquet_errors(path,
                                  [&] { return std::make_unique<ParquetReader>(path, columns); });
}

}  // namespace qkscope
