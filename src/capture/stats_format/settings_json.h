// Converts the settings of statistics to JSON and back, for files and for the identity of a run.
#pragma once

#include <string>

#include "base/io/json.h"
#include "qkscope/statistics.h"

namespace qkscope {

Json settings_json(const StatisticsSettings& settings);
// Throws bad input for unknown names; `where` names the file in messages.
StatisticsSettings settings_from_json(const Json& json, const std::string& where);

}  // namespace qkscope
