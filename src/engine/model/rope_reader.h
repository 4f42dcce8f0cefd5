// Rotary position embedding as config.json spells it.
#pragma once

#include "engine/model/config_reader.h"
#include "qkscope/model.h"

namespace qkscope {

// Below 1 the frequencies would grow with the dimension; published models end at 1e11.
inline constexpr ConfigReader::Range kRopeTheta{1.01, 1e15};

// What a rope_scaling or rope_parameters object adds to theta, dim and max_positions. Accepts
// rope_type and the older type, and a rope_theta inside the object.
RopeConfig read_rope(RopeConfig base, const ConfigReader& parameters);

}  // namespace qkscope
