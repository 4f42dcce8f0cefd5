#include "captures/identity.h"

#include <set>

#include <fmt/format.h>

#include "core/blake2b.h"

namespace qkscope {
namespace {

void compare(const Json& there, const Json& now, const std::string& path,
             std::vector<std::string>& differences) {
  if (there == now) return;
  if (!there.is_object() || !now.is_object()) {
    differences.push_back(fmt::format("{}: {} there, {} now", path, there.dump(), now.dump()));
    return;
  }
  std::set<std::string> keys;
  for (const auto& [key, value] : there.items()) keys.insert(key);
  for (const auto& [key, value] : now.items()) keys.insert(key);
  for (const auto& key : keys)
    compare(there.value(key, Json()), now.value(key, Json()), path.empty() ? key : path + "." + key,
            differences);
}

}  // namespace

std::string config_hash(const Json& effective) {
  return fmt::format("{:016x}", blake2b_64(effective.dump()));
}

std::vector<std::string> config_differences(const Json& there, const Json& now) {
  std::vector<std::string> differences;
  compare(there, now, "", differences);
  return differences;
}

}  // namespace qkscope
