// Parsing of config.json of any family into a ModelConfig. read_model_config in qkscope/model.h
// reads a folder.
#pragma once

#include <string>

#include "base/io/json_fwd.h"
#include "qkscope/model.h"

namespace qkscope {

// Parses the content of config.json, already merged with overrides. `where` names the file in
// messages.
ModelConfig parse_model_config(const Json& config, const std::string& where);

}  // namespace qkscope
