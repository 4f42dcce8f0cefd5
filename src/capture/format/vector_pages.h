// Fast path for the column "vector" of head files: lists of float32 of one length without nulls.
#pragma once

#include <cstdint>
#include <span>

#include <parquet/column_reader.h>

namespace qkscope {

// Decodes a column chunk of lists that all have `length` (at least 8) elements and no nulls,
// without decoding repetition and definition levels one by one. Returns false for any other or
// damaged chunk; `values` is then undefined.
bool read_equal_lists(parquet::PageReader& pages, const parquet::ColumnDescriptor& column,
                      std::int64_t length, std::span<float> values);

}  // namespace qkscope
