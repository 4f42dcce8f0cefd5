// Understands a config.json, whatever family and spelling it has.
#pragma once

#include <string>

#include "io/json.h"
#include "qkscope/model.h"

namespace qkscope {

// Understands config.json (already merged with any overrides). `where` names it in messages.
ModelConfig read_model_config(const Json& config, const std::string& where);

}  // namespace qkscope
