// The configuration of statistics (qkscope/statistics.h), read from YAML.
#pragma once

#include "qkscope/statistics.h"

namespace qkscope {

struct YamlDocument;

StatsConfig read_stats_config(const YamlDocument& document);

// A, B and C in any order, separated by commas; C brings B along. `where` names it in messages.
void set_groups(StatisticsSettings& settings, const std::string& groups, const std::string& where);

}  // namespace qkscope
