// From config.json, whatever its family and spelling, to a ModelConfig. Reading it from a folder is
// public: read_model_config in qkscope/model.h.
#pragma once

#include <string>

#include "base/io/json_fwd.h"
#include "qkscope/model.h"

namespace qkscope {

// `config` is the content of config.json, already merged with any overrides. `where` names it in
// messages.
ModelConfig parse_model_config(const Json& config, const std::string& where);

}  // namespace qkscope
