// The folder of a head in a capture: l03h12q.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "qkscope/captures.h"

namespace qkscope {

// "l03h12q"; two digits, three from 100 on.
std::string folder_name(const HeadId& id);
std::optional<HeadId> parse_folder_name(std::string_view name);

// DATA_ROOT/l03h12q/data.parquet
std::string head_file_path(const std::string& data_root, const HeadId& id);

}  // namespace qkscope
