// One JSON object as a row of a dataset.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "texts/record_reader.h"

namespace qkscope {

// Reads the wanted columns out of `text`, which record.where names in messages.
void parse_json_row(std::string_view text, const RecordColumns& columns, Record& record);

// The members of the object with the types of their values.
std::vector<CorpusColumn> json_row_columns(std::string_view text, const std::string& where);

}  // namespace qkscope
