// Parses the names of settings of statistics.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "qkscope/statistics.h"

namespace qkscope {

// Parses fp8, int8 or int4 followed by _channel, _token, _head or _group_N. Plain fp8 has one scale
// per head; fp8_exported uses the scales of an export. Returns nullopt for any other name.
std::optional<KeyReplacement> replacement_from_name(const std::string& name);
// Parses first_A_last_B, short_P (the P percent of keys with the smallest L2 norm) or qfilter_P (the
// P percent with the best q-filter score). Returns nullopt for any other name.
std::optional<KeptKeys> kept_from_name(const std::string& name);

// Parse q, k or v, and pre or post. Return nullopt for any other name.
std::optional<VectorKind> kind_from_name(std::string_view name);
std::optional<VectorStage> stage_from_name(std::string_view name);

}  // namespace qkscope
