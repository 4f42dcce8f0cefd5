#include <array>

#include "base/core/error.h"
#include "engine/model/family.h"

namespace qkscope {
namespace {

struct NamedType {
  RopeType type;
  const char* name;
};
constexpr std::array kTypes = {
    NamedType{RopeType::standard, "default"}, NamedType{RopeType::linear, "linear"},
    NamedType{RopeType::dynamic, "dynamic"},  NamedType{RopeType::yarn, "yarn"},
    NamedType{RopeType::llama3, "llama3"},    NamedType{RopeType::longrope, "longrope"},
};

RopeType read_type(const ConfigReader& parameters) {
  const auto name = parameters.string("rope_type", parameters.string("type", "default"));
  // longrope was called "su" at first, and "yarn" in some Phi-3 files.
  if (name == "su" || (name == "yarn" && parameters.has("short_factor"))) return RopeType::longrope;
  for (const auto& type : kTypes)
    if (name == type.name) return type.type;
  bad_input("{}: rope_type is '{}', supported are default, linear, dynamic, yarn, llama3, longrope",
            parameters.where(), name);
}

// Valid factors; published models stay far inside, and beyond them angles overflow.
constexpr ConfigReader::Range kFactor{1e-3, 1e6};
constexpr ConfigReader::Range kMagnitude{0.0, 1e3};

void read_longrope(RopeConfig& rope, const ConfigReader& parameters) {
  const auto read = [&](const char* key) {
    auto factors = parameters.numbers(key, kFactor);
    const auto expected = static_cast<std::size_t>(rope.dim / 2);
    if (factors.size() != expected)
      bad_input("{}: '{}' has {} values, expected {} (half the rotated head)", parameters.where(),
                key, factors.size(), expected);
    return factors;
  };
  rope.short_factor = read("short_factor");
  rope.long_factor = read("long_factor");
  if (rope.original_max < 2)  // its logarithm is a divisor
    bad_input("{}: 'original_max_position_embeddings' is {}, expected 2 or more for longrope",
              parameters.where(), rope.original_max);
}

}  // namespace

std::string rope_type_name(RopeType type) {
  for (const auto& entry : kTypes)
    if (entry.type == type) return entry.name;
  return "?";
}

RopeConfig read_rope(RopeConfig base, const ConfigReader& parameters) {
  RopeConfig rope = std::move(base);
  rope.type = read_type(parameters);
  rope.theta = parameters.number("rope_theta", rope.theta, kRopeTheta);
  rope.original_max =
      parameters.count("original_max_position_embeddings",
                       rope.original_max > 0 ? rope.original_max : rope.max_positions);
  if (rope.type == RopeType::standard) return rope;
  const bool may_be_derived = rope.type == RopeType::longrope || rope.type == RopeType::yarn;
  rope.factor =
      may_be_derived && !parameters.has("factor")
          ? static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_max)
          : parameters.number("factor", kFactor);
  if (!kFactor.holds(rope.factor))
    bad_input(
        "{}: max_position_embeddings {} and original_max_position_embeddings {} give the RoPE "
        "factor {}, expected {}",
        parameters.where(), rope.max_positions, rope.original_max, rope.factor,
        kFactor.to_string());
  if (parameters.has("attention_factor"))
    rope.attention_factor = parameters.number("attention_factor", kFactor);
  rope.beta_fast = parameters.number("beta_fast", rope.beta_fast, kFactor);
  rope.beta_slow = parameters.number("beta_slow", rope.beta_slow, kFactor);
  rope.mscale = parameters.number("mscale", 0.0, kMagnitude);
  rope.mscale_all_dim = parameters.number("mscale_all_dim", 0.0, kMagnitude);
  rope.truncate = parameters.flag("truncate", true);
  if (rope.type == RopeType::llama3) {
    rope.low_freq_factor = parameters.number("low_freq_factor", kFactor);
    rope.high_freq_factor = parameters.number("high_freq_factor", kFactor);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      parameters.fail("high_freq_factor", "a number above low_freq_factor");
  }
  if (rope.type == RopeType::dynamic && rope.dim == 2)  // the exponent of theta is dim / (dim - 2)
    bad_input("{}: rope_type 'dynamic' needs more than 2 rotated dimensions", parameters.where());
  if (rope.type == RopeType::longrope) read_longrope(rope, parameters);
  return rope;
}

}  // namespace qkscope
