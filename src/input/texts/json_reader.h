// JSON Lines (an object per line) and JSON files that are one list of objects.
#pragma once

#include <string>
#include <string_view>

#include "input/texts/record_reader.h"

namespace qkscope {

// `text` must outlive the reader; `where` names it in messages.
RecordReaderPointer read_json_lines(std::string_view text, const std::string& where,
                                    const RecordColumns& columns);
RecordReaderPointer read_json_array(std::string_view text, const std::string& where,
                                    const RecordColumns& columns);

}  // namespace qkscope
