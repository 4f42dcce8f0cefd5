// One function per program that reads statistics, each in a file of its own.
#pragma once

#include <string>

#include "capture/exports/export_input.h"

namespace qkscope {

// Each returns the file or folder it wrote.
std::string export_expected_attention(const ExportInput& input);
std::string export_q_filters(const ExportInput& input);
std::string export_triattention(const ExportInput& input);
std::string export_tria(const ExportInput& input);
std::string export_fp8_kv(const ExportInput& input);
std::string export_key_ranges(const ExportInput& input);
std::string export_duo(const ExportInput& input);
std::string export_retrieval_heads(const ExportInput& input);

}  // namespace qkscope
