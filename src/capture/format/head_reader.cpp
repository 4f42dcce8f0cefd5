// Reads and validates head files. Head files written by other programs may lack metadata.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_set>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/memory_pool.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <parquet/statistics.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/arrow_error.h"
#include "base/io/file_memory_pool.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "capture/format/capture_source.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

constexpr char kColumns[] = "bucket, example_id, position, vector, sliding_window";

// Arrow buffer over a memory-mapped file. If the file shrinks while in use, MappedFile reports it.
class MappedBuffer : public arrow::Buffer {
 public:
  explicit MappedBuffer(MappedFile file)
      : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(file.bytes().data()),
                      static_cast<std::int64_t>(file.bytes().size())),
        file_(std::move(file)) {}

 private:
  MappedFile file_;
};

// An open head file. `reader` is destroyed before `pool`, because its pages are in the pool.
struct OpenHeadFile {
  std::unique_ptr<BoundedMemoryPool> pool;
  std::unique_ptr<parquet::ParquetFileReader> reader;

  parquet::ParquetFileReader& operator*() const { return *reader; }
  parquet::ParquetFileReader* operator->() const { return reader.get(); }
};

OpenHeadFile open_head_file(const std::string& path) {
  if (!path_exists(path)) reject("{}: there is no such file", path);
  const auto buffer = std::make_shared<MappedBuffer>(MappedFile(path));
  // The system allocator lets other allocations reuse memory freed by Parquet pages.
  auto pool = std::make_unique<BoundedMemoryPool>(arrow::system_memory_pool(), buffer->size());
  parquet::ReaderProperties properties(pool.get());
  properties.set_page_checksum_verification(true);
  auto reader = parquet::ParquetFileReader::Open(std::make_shared<arrow::io::BufferReader>(buffer),
                                                 properties);
  return {std::move(pool), std::move(reader)};
}

Metadata file_key_value_metadata(const parquet::FileMetaData& file) {
  Metadata metadata;
  const auto& pairs = file.key_value_metadata();
  for (std::int64_t i = 0; pairs && i < pairs->size(); ++i)
    if (pairs->key(i) != "ARROW:schema") metadata[pairs->key(i)] = pairs->value(i);
  return metadata;
}

// Returns the index of the leaf column below a top-level name, or -1 if it is missing.
int leaf_column_index(const parquet::SchemaDescriptor& schema, const std::string& name) {
  for (int i = 0; i < schema.num_columns(); ++i)
    if (schema.Column(i)->path()->ToDotVector().front() == name) return i;
  return -1;
}

class HeadFileReader {
 public:
  HeadFileReader(const std::string& path, parquet::ParquetFileReader& file)
      : path_(path), file_(file), schema_(*file.metadata()->schema()) {
    check_row_count();
  }

  HeadRows read_rows() {
    HeadRows rows;
    const int vector = leaf_column_of_type("vector", parquet::Type::FLOAT);
    rows.bucket = read_required_column<parquet::Int32Type>("bucket");
    rows.example_id = read_required_column<parquet::Int32Type>("example_id");
    rows.position = read_required_column<parquet::Int32Type>("position");
    if (leaf_column_index(schema_, "example_key") >= 0)
      rows.example_key = read_required_column<parquet::Int64Type>("example_key");
    read_vectors(vector, rows);
    read_sliding_window(rows);
    read_token_strings(rows);
    for (std::size_t i = 0; i < rows.position.size(); ++i)
      if (rows.position[i] < 0)
        reject("{}: row {}: position is {}; expected 0 or more", path_, i, rows.position[i]);
    return rows;
  }

  // Returns the example of each row: its 64-bit key if the file has one, else its 32-bit id.
  std::vector<std::int64_t> read_example_ids() {
    if (leaf_column_index(schema_, "example_key") >= 0)
      return read_required_column<parquet::Int64Type>("example_key");
    const auto ids = read_required_column<parquet::Int32Type>("example_id");
    return {ids.begin(), ids.end()};
  }

 private:
  std::int64_t row_count() const { return file_.metadata()->num_rows(); }

  // Caps the capacity to reserve at the file size: a damaged file may claim any number of rows.
  std::size_t limit_by_file_size(std::int64_t claimed) const {
    return std::min(static_cast<std::size_t>(std::max<std::int64_t>(claimed, 0)),
                    static_cast<std::size_t>(std::filesystem::file_size(path_)));
  }

  // Prevents huge allocations for corrupt counts: a valid file has at least one byte per 64 rows.
  void check_row_count() const {
    constexpr std::uintmax_t kRowsPerByte = 64;
    const auto& metadata = *file_.metadata();
    const auto most = kRowsPerByte * std::filesystem::file_size(path_);
    std::uintmax_t rows = 0;
    for (int group = 0; group < metadata.num_row_groups(); ++group) {
      const auto count = metadata.RowGroup(group)->num_rows();
      if (count >= 0) rows += static_cast<std::uintmax_t>(count);
      if (count < 0 || rows > most)
        reject("{}: row group {} has {} rows, which such a file cannot hold; it is damaged", path_,
               group, count);
    }
    if (row_count() < 0 || static_cast<std::uintmax_t>(row_count()) != rows)
      reject("{}: says it has {} rows, but its row groups have {}; it is damaged", path_,
             row_count(), rows);
  }

  // Returns the leaf index of a column. Bad input if the column is missing or has another type.
  int leaf_column_of_type(const std::string& name, parquet::Type::type type) const {
    const int leaf = leaf_column_index(schema_, name);
    if (leaf < 0) reject("{}: no column '{}'; expected the columns {}", path_, name, kColumns);
    const auto found = schema_.Column(leaf)->physical_type();
    if (found != type)
      reject("{}: column '{}' is {}; expected {}", path_, name, parquet::TypeToString(found),
             parquet::TypeToString(type));
    return leaf;
  }

  // Reads a column in batches, one row group at a time, and calls batch(definition levels,
  // repetition levels, values) for each batch. A null has a definition level below the maximum of
  // the column and no entry in the values.
  template <typename Type, typename Batch>
  void for_each_batch(int leaf, const Batch& batch) {
    constexpr std::int64_t kBatch = 1 << 13;  // the buffers stay in the L2 cache
    const auto max_level = schema_.Column(leaf)->max_definition_level();
    std::vector<std::int16_t> levels(kBatch, max_level);
    std::vector<std::int16_t> repetition(kBatch);
    std::vector<typename Type::c_type> values(kBatch);
    for (int group = 0; group < file_.metadata()->num_row_groups(); ++group) {
      const auto column = file_.RowGroup(group)->Column(leaf);
      auto& reader = static_cast<parquet::TypedColumnReader<Type>&>(*column);
      const auto metadata = file_.metadata()->RowGroup(group);
      const auto expected = std::is_same_v<Type, parquet::FloatType>  // lists; others are flat
                                ? metadata->ColumnChunk(leaf)->num_values()
                                : metadata->num_rows();
      std::int64_t done = 0;
      // HasNext() may return false at an empty page (such as an empty dictionary): call it twice.
      while (done < expected && (reader.HasNext() || reader.HasNext())) {
        std::int64_t stored = 0;
        const auto count = reader.ReadBatch(std::min(kBatch, expected - done), levels.data(),
                                            repetition.data(), values.data(), &stored);
        const auto size = static_cast<std::size_t>(count);
        if (std::count(levels.begin(), levels.begin() + count, max_level) != stored)
          reject(
              "{}: column '{}' has {} values where its levels say otherwise; the file is damaged",
              path_, column_name(leaf), stored);
        batch(std::span(levels).first(size), std::span(repetition).first(size),
              std::span(values).first(static_cast<std::size_t>(stored)));
        done += count;
      }
      if (done != expected)
        reject("{}: column '{}' ends after {} of {} values; the file is damaged", path_,
               column_name(leaf), done, expected);
    }
  }

  std::string column_name(int leaf) const {
    return schema_.Column(leaf)->path()->ToDotVector().front();
  }

  // Reads a flat column. Nulls require `defined`, which receives 0 for a null and 1 for a value.
  template <typename Type>
  std::vector<typename Type::c_type> read_flat_column(
      int leaf, std::vector<std::int16_t>* defined = nullptr) {
    std::vector<typename Type::c_type> all;
    all.reserve(limit_by_file_size(row_count()));
    const auto max_level = schema_.Column(leaf)->max_definition_level();
    std::int64_t row = 0;
    for_each_batch<Type>(leaf, [&](auto levels, auto, auto values) {
      all.insert(all.end(), values.begin(), values.end());
      for (const auto level : levels) {
        if (defined != nullptr)
          defined->push_back(level == max_level ? 1 : 0);
        else if (level != max_level)
          reject("{}: row {}: '{}' is null; expected a number", path_, row, column_name(leaf));
        ++row;
      }
    });
    return all;
  }

  template <typename Type>
  std::vector<typename Type::c_type> read_required_column(const char* name) {
    return read_flat_column<Type>(leaf_column_of_type(name, Type::type_num));
  }

  // Reads the list column `vector`. Rows begin at repetition level 0 and must have equal lengths.
  void read_vectors(int leaf, HeadRows& rows) {
    if (schema_.Column(leaf)->max_repetition_level() != 1)
      reject("{}: column 'vector' is not a list of float32", path_);
    const auto& metadata = *file_.metadata();
    std::int64_t count = 0;
    for (int group = 0; group < metadata.num_row_groups(); ++group)
      count += metadata.RowGroup(group)->ColumnChunk(leaf)->num_values();
    rows.vectors.reserve(limit_by_file_size(count));
    const auto max_level = schema_.Column(leaf)->max_definition_level();
    std::int64_t row = -1;
    std::int64_t length = 0;
    const auto end_row = [&] {
      if (row == 0) rows.head_dim = static_cast<int>(length);
      if (row >= 0 && length != rows.head_dim)
        reject("{}: row {}: 'vector' has {} numbers; the rows before it have {}", path_, row,
               length, rows.head_dim);
    };
    for_each_batch<parquet::FloatType>(leaf, [&](auto levels, auto repetition, auto values) {
      for (auto i = repetition.begin(), end = i; i != repetition.end(); i = end) {
        if (*i == 0) {
          end_row();
          ++row;
          length = 0;
        }
        end = std::find(i + 1, repetition.end(), 0);
        length += end - i;
        const auto level = levels.begin() + (i - repetition.begin());
        if (values.size() < levels.size() &&
            std::count(level, level + (end - i), max_level) < end - i)
          reject("{}: row {}: 'vector' is null, empty or holds a null; expected numbers", path_,
                 row);
      }
      rows.vectors.insert(rows.vectors.end(), values.begin(), values.end());
    });
    end_row();
    if (rows.vectors.size() != rows.position.size() * static_cast<std::size_t>(rows.head_dim))
      reject("{}: column 'vector' has {} numbers; expected {} rows of {}", path_,
             rows.vectors.size(), rows.position.size(), rows.head_dim);
  }

  // Whether all values of the column are null, according to the Parquet statistics.
  bool is_all_null(int leaf) const {
    for (int group = 0; group < file_.metadata()->num_row_groups(); ++group) {
      const auto row_group = file_.metadata()->RowGroup(group);
      const auto statistics = row_group->ColumnChunk(leaf)->statistics();
      if (!statistics || !statistics->HasNullCount() ||
          statistics->null_count() != row_group->num_rows())
        return false;
    }
    return true;
  }

  // qk-sniffer lets Arrow infer this column's type: int64 for sliding-window layers, else null.
  std::vector<std::int64_t> read_window_column(int leaf, std::vector<std::int16_t>& defined) {
    const auto type = schema_.Column(leaf)->physical_type();
    if (type == parquet::Type::INT64) return read_flat_column<parquet::Int64Type>(leaf, &defined);
    if (type == parquet::Type::INT32) {
      const auto narrow = read_flat_column<parquet::Int32Type>(leaf, &defined);
      return {narrow.begin(), narrow.end()};
    }
    if (!is_all_null(leaf))
      reject("{}: column 'sliding_window' is {}; expected INT32 or INT64", path_,
             parquet::TypeToString(type));
    return {};
  }

  void read_sliding_window(HeadRows& rows) {
    const int leaf = leaf_column_index(schema_, "sliding_window");
    rows.window_missing = leaf < 0;
    if (leaf < 0) return;
    std::vector<std::int16_t> defined;
    const auto found = read_window_column(leaf, defined);
    if (found.empty()) return;
    std::size_t next = 0;
    for (std::size_t row = 0; row < defined.size(); ++row) {
      if (defined[row] == 0)
        reject("{}: row {}: 'sliding_window' is null, other rows say {}; expected one window",
               path_, row, found.front());
      if (found[next++] != found.front())
        reject("{}: row {}: 'sliding_window' is {}, rows before it say {}; expected one window",
               path_, row, found[next - 1], found.front());
    }
    if (found.front() < 1 || found.front() > INT32_MAX)
      reject("{}: 'sliding_window' is {}; expected 1 to {}", path_, found.front(), INT32_MAX);
    rows.sliding_window = static_cast<std::int32_t>(found.front());
  }

  // Token strings are informative only: a column of another type is ignored, null becomes "".
  void read_token_strings(HeadRows& rows) {
    const int leaf = leaf_column_index(schema_, "token_str");
    if (leaf < 0 || schema_.Column(leaf)->physical_type() != parquet::Type::BYTE_ARRAY ||
        schema_.Column(leaf)->max_repetition_level() != 0)
      return;
    const auto max_level = schema_.Column(leaf)->max_definition_level();
    for_each_batch<parquet::ByteArrayType>(leaf, [&](auto levels, auto, auto values) {
      std::size_t next = 0;
      for (const auto level : levels)
        rows.token_str.emplace_back(level == max_level ? std::string_view(values[next++])
                                                       : std::string_view());
    });
  }

  const std::string& path_;
  parquet::ParquetFileReader& file_;
  const parquet::SchemaDescriptor& schema_;
};

// Captures store one example after another with ascending positions. A file in this order cannot
// contain duplicates, so no sorting is needed to detect them.
bool is_in_capture_order(const HeadRows& rows) {
  std::unordered_set<std::int64_t> seen;  // example ids; empty while they ascend
  for (std::size_t i = 1; i < rows.position.size(); ++i) {
    const auto before = rows.example(i - 1);
    const auto here = rows.example(i);
    if (here == before && rows.position[i] <= rows.position[i - 1]) return false;
    if (here == before || (seen.empty() && here > before)) continue;
    if (seen.empty())
      for (std::size_t j = 0; j < i; ++j) seen.insert(rows.example(j));
    if (!seen.insert(here).second) return false;
  }
  return true;
}

void check_vectors_finite(const HeadRows& rows, const std::string& path) {
  const auto dim = static_cast<std::size_t>(rows.head_dim);
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    const auto row = std::span(rows.vectors).subspan(i * dim, dim);
    if (all_finite(row)) continue;
    const auto finite = [](float x) { return std::isfinite(x); };
    const auto j = as_index(std::ranges::find_if_not(row, finite) - row.begin());
    reject("{}: row {} (example {}, position {}): vector[{}] is {}; expected finite numbers", path,
           i, rows.example(i), rows.position[i], j, row[j]);
  }
}

// Throws a bad-input error if an (example, position) pair occurs twice.
void check_no_duplicate_rows(const HeadRows& rows, const std::string& path) {
  if (is_in_capture_order(rows)) return;
  std::vector<std::size_t> order(rows.position.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) { return std::tuple(rows.example(i), rows.position[i], i); };
  std::ranges::sort(order, [&](auto x, auto y) { return key(x) < key(y); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto first = order[i - 1];
    const auto second = order[i];
    if (rows.example(first) != rows.example(second)) continue;
    if (rows.position[first] != rows.position[second]) continue;
    reject("{}: rows {} and {} are both example {}, position {}; expected each token once", path,
           first, second, rows.example(first), rows.position[first]);
  }
}

}  // namespace

HeadFile read_head_file(const std::string& path) {
  return translate_exceptions([&] {
    HeadFile file = translate_parquet_errors(path, [&] {
      const auto reader = open_head_file(path);
      return HeadFile{HeadFileReader(path, *reader).read_rows(),
                      file_key_value_metadata(*reader->metadata())};
    });
    check_vectors_finite(file.rows, path);
    check_no_duplicate_rows(file.rows, path);
    return file;
  });
}

std::vector<std::int64_t> read_head_example_ids(const std::string& path) {
  return translate_parquet_errors(path, [&] {
    const auto reader = open_head_file(path);
    return HeadFileReader(path, *reader).read_example_ids();
  });
}

Metadata read_head_metadata(const std::string& path) {
  return translate_exceptions([&] {
    return translate_parquet_errors(
        path, [&] { return file_key_value_metadata(*open_head_file(path)->metadata()); });
  });
}

}  // namespace qkscope
