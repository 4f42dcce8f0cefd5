#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/io/folder.h"
#include "base/tables/parquet_stream.h"
#include "capture/stats_format/stats_file.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {
namespace {

// Returns the path of a head's table of attention received per key: "columns/l03h12.parquet".
std::string key_sums_path(const LayerHead& head) {
  return fmt::format("{}/l{:02}h{:02}.parquet", stats_layout::kColumnsFolder, head.layer,
                     head.head);
}

// Approximate number of rows in a row group, which is buffered in memory until it is written.
constexpr std::int64_t kGroupRows = 4096;

// Returns the indices of the attention columns whose mean over rows is stored per document.
std::vector<std::size_t> per_document_columns(const AttentionStatistics& a) {
  std::vector<std::size_t> places;
  for (std::size_t c = 0; c < a.columns.size(); ++c)
    if (is_per_query_column(a.columns[c])) places.push_back(c);
  return places;
}

Table empty_document_table(const Statistics& s) {
  Table table = empty_table(
      fmt::format("integer example_id, integer example_key, {}, integer rows", kHeadColumns));
  for (const auto c : per_document_columns(s.attention))
    table.column(s.attention.columns[c], Table::Type::real);
  for (const auto& name : s.attention.document_columns) table.column(name, Table::Type::real);
  return table;
}

std::int64_t example_id_of(std::int64_t key) {
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(key));
}

void add_document_rows(Table& table, const Statistics& s, const std::vector<std::size_t>& columns,
                       const DocumentAttention& document) {
  const AttentionStatistics& a = s.attention;
  const double* mean = document.mean.data();
  const double* value = document.values.data();
  for (std::int64_t layer = 0; layer < a.layers; ++layer)
    for (std::int64_t head = 0; head < a.heads; ++head) {
      std::vector<Table::Cell> cells = {example_id_of(document.example_key), document.example_key};
      for (auto& cell : head_id_cells(s, layer, head)) cells.push_back(std::move(cell));
      cells.emplace_back(document.tokens);
      for (const auto c : columns) cells.emplace_back(mean[c]);
      for (std::size_t c = 0; c < a.document_columns.size(); ++c) cells.emplace_back(value[c]);
      mean += a.columns.size();
      value += a.document_columns.size();
      table.add(std::move(cells));
    }
}

Table empty_key_sum_table() {
  return empty_table("integer example_id, integer example_key, integer position, real col");
}

// Buffers rows until a row group is full. A document never spans two row groups.
class DocumentTableWriter {
 public:
  DocumentTableWriter(const std::string& path, const Table& columns)
      : file_(path), columns_(columns), rows_(columns) {}

  Table& buffered_rows() { return rows_; }
  void finish_document_rows() {
    if (rows_.rows() >= kGroupRows) flush();
  }
  void finish() {
    flush();
    file_.finish();
  }

 private:
  void flush() {
    file_.append(rows_);
    rows_ = columns_;
  }

  ParquetTableWriter file_;
  Table columns_;  // column declarations, no rows
  Table rows_;
};

// Reads the rows that DocumentTableWriter wrote, one document at a time.
class DocumentTableReader {
 public:
  DocumentTableReader(const std::string& path, Table columns)
      : path_(path), file_(path), expected_(std::move(columns)) {}

  // Loads the next row group when the current one is consumed. Returns false after the last group.
  bool load_rows() {
    if (row_ < group_rows_) return true;
    if (group_ == file_.row_group_count()) return false;
    table_ = file_.read_row_group(group_++);
    row_ = 0;
    group_rows_ = static_cast<std::size_t>(table_.rows());
    if (!have_same_columns(table_.columns(), expected_.columns()))
      reject("{}: its columns are not those of the statistics beside it; make them again", path_);
    return load_rows();
  }
  std::size_t rows_left() const { return group_rows_ - row_; }  // in the current row group
  void skip_rows(std::size_t rows) { row_ += rows; }
  std::int64_t integer_at(std::size_t column, std::size_t row) const {
    return table_.columns()[column].integers[row_ + row];
  }
  double real_at(std::size_t column, std::size_t row) const {
    return table_.columns()[column].reals[row_ + row];
  }
  [[noreturn]] void throw_damaged_table() const {
    reject("{}: its rows are not those of whole documents; make the statistics again", path_);
  }

 private:
  std::string path_;
  ParquetTableReader file_;
  Table expected_;
  Table table_;
  int group_ = 0;
  std::size_t row_ = 0;
  std::size_t group_rows_ = 0;
};

class FolderDocumentReader : public DocumentSource {
 public:
  FolderDocumentReader(const std::string& folder, const Statistics& s)
      : statistics_(s),
        columns_(per_document_columns(s.attention)),
        rows_(folder + "/" + stats_layout::kDocumentsFile, empty_document_table(s)) {
    if (!has_key_sums(s.settings)) return;
    for (const auto& head : s.settings.columns)
      key_sums_.push_back(std::make_unique<DocumentTableReader>(folder + "/" + key_sums_path(head),
                                                                empty_key_sum_table()));
  }

  bool next(DocumentAttention& document) override {
    if (!rows_.load_rows()) return false;
    const AttentionStatistics& a = statistics_.attention;
    const auto heads = as_index(a.layers * a.heads);
    if (rows_.rows_left() < heads) rows_.throw_damaged_table();
    document.example_key = rows_.integer_at(kKey, 0);
    document.tokens = rows_.integer_at(kRows, 0);
    document.mean.assign(heads * a.columns.size(), kNan);
    document.values.clear();
    for (std::size_t row = 0; row < heads; ++row) {
      if (rows_.integer_at(kKey, row) != document.example_key) rows_.throw_damaged_table();
      for (std::size_t c = 0; c < columns_.size(); ++c)
        document.mean[row * a.columns.size() + columns_[c]] = rows_.real_at(kFirst + c, row);
      for (std::size_t c = 0; c < a.document_columns.size(); ++c)
        document.values.push_back(rows_.real_at(kFirst + columns_.size() + c, row));
    }
    rows_.skip_rows(heads);
    document.key_sums.clear();
    const auto tokens = as_index(document.tokens);
    for (const auto& file : key_sums_) {
      if (!file->load_rows() || file->rows_left() < tokens ||
          file->integer_at(kKey, 0) != document.example_key)
        file->throw_damaged_table();
      auto& sums = document.key_sums.emplace_back();
      for (std::size_t t = 0; t < tokens; ++t) sums.push_back(file->real_at(3, t));
      file->skip_rows(tokens);
    }
    return true;
  }

 private:
  // Column indices in attention_documents.parquet; kKey also applies to the tables in columns/.
  static constexpr std::size_t kKey = 1;
  static constexpr std::size_t kRows = 6;   // number of tokens of the document
  static constexpr std::size_t kFirst = 7;  // first of the statistics

  const Statistics& statistics_;
  std::vector<std::size_t> columns_;
  DocumentTableReader rows_;
  std::vector<std::unique_ptr<DocumentTableReader>> key_sums_;
};

}  // namespace

void write_document_tables(const std::string& folder, const Statistics& s,
                           DocumentSource& documents) {
  DocumentTableWriter table(folder + "/" + stats_layout::kDocumentsFile, empty_document_table(s));
  const auto heads = has_key_sums(s.settings) ? s.settings.columns : std::vector<LayerHead>();
  if (!heads.empty()) make_folders(folder + "/" + stats_layout::kColumnsFolder);
  const auto key_sums = to_vector(heads, [&](const LayerHead& head) {
    return std::make_unique<DocumentTableWriter>(folder + "/" + key_sums_path(head),
                                                 empty_key_sum_table());
  });
  const auto columns = per_document_columns(s.attention);
  DocumentAttention document;
  while (documents.next(document)) {
    add_document_rows(table.buffered_rows(), s, columns, document);
    table.finish_document_rows();
    for (std::size_t i = 0; i < key_sums.size(); ++i) {
      const auto& sums = document.key_sums[i];
      for (std::size_t t = 0; t < sums.size(); ++t)
        key_sums[i]->buffered_rows().add({example_id_of(document.example_key), document.example_key,
                                          static_cast<std::int64_t>(t), sums[t]});
      key_sums[i]->finish_document_rows();
    }
  }
  table.finish();
  for (const auto& file : key_sums) file->finish();
}

std::unique_ptr<DocumentSource> open_document_source(const std::string& folder,
                                                     const Statistics& statistics) {
  if (statistics.attention.empty()) return nullptr;
  return std::make_unique<FolderDocumentReader>(folder, statistics);
}

}  // namespace qkscope
