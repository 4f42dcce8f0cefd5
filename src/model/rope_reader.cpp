#include "model/rope_reader.h"

#include <array>

#include "core/error.h"

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
  const auto name = parameters.word("rope_type", parameters.word("type", "default"));
  for (const auto& type : kTypes)
    if (name == type.name) return type.type;
  if (name == "su") return RopeType::longrope;  // what longrope was called at first
  bad_input("{}: rope_type is '{}', supported are default, linear, dynamic, yarn, llama3, longrope",
            parameters.where(), name);
}

void read_longrope(RopeConfig& rope, const ConfigReader& parameters) {
  rope.short_factor = parameters.numbers("short_factor");
  rope.long_factor = parameters.numbers("long_factor");
  const auto expected = static_cast<std::size_t>(rope.dim / 2);
  for (const auto* key : {"short_factor", "long_factor"})
    if (parameters.numbers(key).size() != expected)
      bad_input("{}: '{}' has {} values, expected {} (half the rotated head)", parameters.where(),
                key, parameters.numbers(key).size(), expected);
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
  rope.theta = parameters.number("rope_theta", rope.theta);
  if (rope.theta <= 1.0) parameters.complain("rope_theta", "a number above 1");
  rope.original_max =
      parameters.count("original_max_position_embeddings",
                       rope.original_max > 0 ? rope.original_max : rope.max_positions);
  if (rope.type == RopeType::standard) return rope;
  const bool may_be_derived = rope.type == RopeType::longrope || rope.type == RopeType::yarn;
  rope.factor =
      may_be_derived && !parameters.has("factor")
          ? static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_max)
          : parameters.number("factor");
  if (rope.factor <= 0.0) parameters.complain("factor", "a positive number");
  if (parameters.has("attention_factor"))
    rope.attention_factor = parameters.number("attention_factor");
  rope.beta_fast = parameters.number("beta_fast", rope.beta_fast);
  rope.beta_slow = parameters.number("beta_slow", rope.beta_slow);
  rope.mscale = parameters.number("mscale", 0.0);
  rope.mscale_all_dim = parameters.number("mscale_all_dim", 0.0);
  rope.truncate = parameters.flag("truncate", true);
  if (rope.type == RopeType::llama3) {
    rope.low_freq_factor = parameters.number("low_freq_factor");
    rope.high_freq_factor = parameters.number("high_freq_factor");
    if (rope.low_freq_factor <= 0.0) parameters.complain("low_freq_factor", "a positive number");
    if (rope.high_freq_factor <= rope.low_freq_factor)
      parameters.complain("high_freq_factor", "a number above low_freq_factor");
  }
  if (rope.type == RopeType::longrope) read_longrope(rope, parameters);
  return rope;
}

}  // namespace qkscope
