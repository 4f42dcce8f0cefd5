// Parquet files through Arrow: only the wanted columns, a small batch of rows at a time.
#pragma once

#include <string>

#include "input/texts/record_reader.h"

namespace qkscope {

RecordReaderPointer open_parquet(const std::string& path, const RecordColumns& columns);

}  // namespace qkscope
