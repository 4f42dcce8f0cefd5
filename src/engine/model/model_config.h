// Parsing of config.json of any family into a ModelConfig.
#pragma once

#include <string>

#include "base/io/json_fwd.h"
#include "qkscope/model.h"

namespace qkscope {

// Parses config.json after overrides were merged. `where` names the file in messages.
ModelConfig parse_model_config(const Json& config, const std::string& where);

}  // namespace qkscope
