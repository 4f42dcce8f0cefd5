// The section `analysis` of a sweep: the options of `qkscope analyze` under the same names.
#pragma once

#include "capture/yaml_section.h"
#include "results/analyze.h"

namespace qkscope {

AnalyzeOptions read_analysis(YamlSection section);

}  // namespace qkscope
