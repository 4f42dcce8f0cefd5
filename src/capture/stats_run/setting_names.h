// Settings of statistics that are chosen by a name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "qkscope/statistics.h"

namespace qkscope {

// From its name: fp8, int8 or int4, then _channel, _token, _head or _group_N; fp8 alone shares one
// scale in a head, fp8_exported takes those of an export. Nothing for any other name.
std::optional<KeyReplacement> replacement_from_name(const std::string& name);
// first_A_last_B, or short_P: P percent of the keys, the shortest; or qfilter_P: those with the
// best score of q-filters.
std::optional<KeptKeys> kept_from_name(const std::string& name);

// q, k or v; pre or post; nothing for any other name.
std::optional<VectorKind> kind_from_name(std::string_view name);
std::optional<VectorStage> stage_from_name(std::string_view name);

}  // namespace qkscope
