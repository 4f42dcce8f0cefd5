// What the metadata of a head file says about rotary position embedding on its layer.
#pragma once

#include <string>
#include <vector>

#include "qkscope/captures.h"

namespace qkscope {

std::string to_string(RopeUse use);  // "rope", "nope", "unknown": as in every result file

struct RopeInfo {
  RopeUse use = RopeUse::unknown;
  std::vector<double> inv_freq;  // radians per token, descending; empty when not known
};

// `where` names the file in messages.
RopeInfo rope_info(const Metadata& metadata, const std::string& where);

// theta^(-2i/dim) for i in [0, dim/2): what plain RoPE turns by per token.
std::vector<double> plain_inv_freq(double theta, int dim);

}  // namespace qkscope
