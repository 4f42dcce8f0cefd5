// Rotary position embedding: its parameters as a configuration gives them, and its frequencies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config_reader.h"

namespace qkscope {

enum class RopeType { standard, linear, dynamic, yarn, llama3, longrope };

struct RopeConfig {
  RopeType type = RopeType::standard;
  double theta = 10000.0;
  std::int64_t dim = 0;            // rotated part of the head, even
  std::int64_t max_positions = 0;  // max_position_embeddings
  double factor = 1.0;
  std::int64_t original_max = 0;           // original_max_position_embeddings
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  double mscale = 0.0;                     // yarn; 0: not given
  double mscale_all_dim = 0.0;             // yarn; 0: not given
  bool truncate = true;                    // yarn
  std::optional<double> attention_factor;  // yarn, longrope
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  std::vector<double> short_factor;        // longrope, dim / 2
  std::vector<double> long_factor;         // longrope, dim / 2
};

std::string rope_type_name(RopeType type);

// What a rope_scaling or rope_parameters object adds to theta, dim and max_positions. Accepts
// rope_type and the older type, and a rope_theta inside the object.
RopeConfig read_rope(RopeConfig base, const ConfigReader& parameters);

struct RopeFrequencies {
  std::vector<float> inverse;     // (dim / 2), radians per position
  float attention_factor = 1.0f;  // multiplies cos and sin
};

// The frequencies for a sequence of `length` tokens; only dynamic and longrope depend on it.
// float32 arithmetic in the order transformers uses.
RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t length);

}  // namespace qkscope
