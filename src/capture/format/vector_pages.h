// Reads a column of lists of float32 page by page where nothing is missing: what captures look
// like.
#pragma once

#include <cstdint>
#include <span>

#include <parquet/column_reader.h>

namespace qkscope {

// Fills `values` with a column chunk of lists that are all `length` (8 or more) long and hold no
// null, without unfolding the levels of its values. False where the chunk is anything else, damaged
// included: then nothing is known of it, and `values` means nothing.
bool read_equal_lists(parquet::PageReader& pages, const parquet::ColumnDescriptor& column,
                      std::int64_t length, std::span<float> values);

}  // namespace qkscope
