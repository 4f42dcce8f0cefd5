// The section `analysis` of a sweep: the options of `qkscope analyze` under the same names.
#pragma once

#include "qkscope/analysis.h"
#include "yaml/yaml_section.h"
#include "results/analyze.h"
#include "yaml/yaml_config.h"

namespace qkscope {

AnalyzeOptions read_analysis(YamlSection section);

}  // namespace qkscope
