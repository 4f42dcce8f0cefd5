#include "input/checkpoint/weight_index.h"

#include <algorithm>
#include <filesystem>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"

namespace qkscope {
namespace {

bool stays_in_folder(const std::string& shard) {
  const std::filesystem::path path(shard);
  return !shard.empty() && shard.find('\0') == std::string::npos && path.has_filename() &&
         path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where) {
  const Json json = parse_json(text, where, RepeatedKeys::refuse);
  if (!json.is_object() || !json.contains("weight_map"))
    bad_input("{}: found no weight_map; expected a map with weight_map: tensor name to shard file",
              where);
  const Json& weight_map = json["weight_map"];
  if (!weight_map.is_object())
    bad_input("{}: weight_map: found {}, expected a map from tensor name to shard file", where,
              weight_map.type_name());
  if (weight_map.empty()) bad_input("{}: weight_map is empty, expected tensor names", where);

  std::map<std::string, std::string> shards;
  for (const auto& [name, value] : weight_map.items()) {
    if (!value.is_string())
      bad_input("{}: weight_map {}: found {}, expected the name of a shard file", where,
                in_quotes(name), value.type_name());
    const auto& shard = value.get_ref<const std::string&>();
    if (!stays_in_folder(shard))
      bad_input(
          "{}: weight_map puts tensor {} into {}, expected a file inside the checkpoint's folder",
          where, in_quotes(name), in_quotes(shard));
    shards.emplace(name, shard);
  }
  return shards;
}

}  // namespace qkscope
