// The settings of statistics as JSON: in the files of a run, and in what tells two runs apart.
#pragma once

#include <string>

#include "base/io/json.h"
#include "qkscope/statistics.h"

namespace qkscope {

Json settings_json(const StatisticsSettings& settings);
// `where` names the file in messages.
StatisticsSettings settings_from_json(const Json& json, const std::string& where);

}  // namespace qkscope
