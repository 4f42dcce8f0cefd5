// Reads the configuration of statistics (qkscope/statistics.h) from YAML.
#pragma once

#include "qkscope/statistics.h"

namespace qkscope {

struct YamlDocument;

StatsConfig read_stats_config(const YamlDocument& document);

// Parses group letters A, B and C separated by commas; C implies B. `where` names the setting in
// messages.
void set_groups(StatisticsSettings& settings, const std::string& groups, const std::string& where);

}  // namespace qkscope
