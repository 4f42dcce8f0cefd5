// Comma-separated values with a header line. Fields may be quoted, and then hold commas, line ends
// and doubled quotes.
#pragma once

#include <string>
#include <string_view>

#include "input/texts/record_reader.h"

namespace qkscope {

// `text` must outlive the reader; `where` names it in messages.
RecordReaderPointer read_csv(std::string_view text, const std::string& where,
                             const RecordColumns& columns);

}  // namespace qkscope
