// Which mapped file an address belongs to, for the signal that a file was cut under us
// (report_cut_files in qkscope/experimental/text.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace qkscope {

void list_mapping(std::span<const std::byte> bytes, const std::string& path);
void unlist_mapping(const std::byte* begin);

}  // namespace qkscope
