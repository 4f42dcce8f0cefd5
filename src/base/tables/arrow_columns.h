// Conversion between Table and Arrow, and the Parquet settings of tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <arrow/type_fwd.h>
#include <parquet/type_fwd.h>

#include "qkscope/tables.h"

namespace parquet::arrow {
class FileReader;
}

namespace qkscope {

inline constexpr std::int64_t kTableRowGroup = std::int64_t{1} << 20;  // rows per row group

// Memory pool of result tables: uses malloc, so that tables reuse memory that the analyses freed.
// Like head_file_memory_pool(), throws std::bad_alloc if memory runs out.
arrow::MemoryPool* table_memory_pool();
// Memory pool for head files (captured query and key vectors): Arrow's default pool.
arrow::MemoryPool* head_file_memory_pool();

// Writer settings of result tables: ZSTD; real columns use byte-stream-split instead of a
// dictionary, because their values rarely repeat.
std::shared_ptr<parquet::WriterProperties> parquet_writer_properties(const arrow::Schema& schema);

// Converts a table to Arrow; missing values become null.
std::shared_ptr<arrow::Table> to_arrow_table(const Table& table);

// Opens a Parquet file. Throws a bad-input error if it is missing or not a readable Parquet file.
std::unique_ptr<parquet::arrow::FileReader> open_parquet(const std::string& path);
// Throws a bad-input error that names the Parquet file if `status`, returned by a read, is not OK.
void check_parquet_status(const arrow::Status& status, const std::string& path);

enum class NullIntegerPolicy { refuse, keep };  // treatment of null integers and booleans

// Converts an Arrow column. `where` (file and column) begins every error message.
Table::Column to_table_column(const std::string& name, const arrow::ChunkedArray& column,
                              NullIntegerPolicy nulls, const std::string& where);

}  // namespace qkscope
