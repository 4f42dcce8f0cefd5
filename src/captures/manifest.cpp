#include "captures/manifest.h"

#include <set>

#include <fmt/format.h>

#include "captures/metadata.h"
#include "core/blake2b.h"

namespace qkscope {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <typename T>
std::optional<T> optional_from(const Json& json) {
  if (json.is_null()) return {};
  return json.get<T>();
}

Json group_to_json(const HeadGroup& group) {
  return {{"layer", group.layer}, {"kind", std::string(1, static_cast<char>(group.kind))},
          {"heads", group.heads}, {"window", or_null(group.window)},
          {"rope", group.rope},   {"rope_inv_freq", group.rope_inv_freq}};
}

HeadGroup group_from_json(const Json& json) {
  return {.layer = json.at("layer"),
          .kind = json.at("kind") == "q" ? HeadKind::query : HeadKind::key,
          .heads = json.at("heads"),
          .window = optional_from<std::int32_t>(json.at("window")),
          .rope = json.at("rope"),
          .rope_inv_freq = json.at("rope_inv_freq")};
}

SamplerOptions sampler_from_json(const Json& json) {
  SamplerOptions options;
  for (const auto type : {SamplerType::log_uniform, SamplerType::uniform, SamplerType::all})
    if (json.at("type") == sampler_type_name(type)) options.type = type;
  options.base_rate = json.at("base_rate");
  options.min_bucket_size = json.at("min_bucket_size");
  options.max_rows = optional_from<std::int64_t>(json.at("max_rows"));
  return options;
}

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
    compare(there.value(key, Json()), now.value(key, Json()),
            path.empty() ? key : fmt::format("{}.{}", path, key), differences);
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

HeadId Manifest::head_id(const HeadGroup& group, std::int64_t head) const {
  return {static_cast<int>(group.layer), static_cast<int>(head), group.kind};
}

Metadata Manifest::file_metadata(const HeadGroup& group, std::int64_t head) const {
  Metadata all = metadata;
  all[metadata::kLayer] = std::to_string(group.layer);
  all[metadata::kHead] = std::to_string(head);
  all[metadata::kKind] = std::string(1, static_cast<char>(group.kind));
  if (group.kind == HeadKind::query)
    all[metadata::kKeyHead] = std::to_string(head / heads_per_key_head);
  all[metadata::kRope] = group.rope;
  if (!group.rope_inv_freq.empty()) all[metadata::kRopeInvFreq] = group.rope_inv_freq;
  put_sampler(all, sampler);
  all[metadata::kConfigHash] = config_hash;
  return all;
}

Json to_json(const Manifest& manifest) {
  Json groups = Json::array();
  for (const auto& group : manifest.groups) groups.push_back(group_to_json(group));
  const auto& sampler = manifest.sampler;
  return {{"identity", manifest.identity},
          {"config_hash", manifest.config_hash},
          {"head_dim", manifest.head_dim},
          {"heads_per_key_head", manifest.heads_per_key_head},
          {"row_group_size", manifest.row_group_size},
          {"token_strings", manifest.token_strings},
          {"sampler",
           {{"type", sampler_type_name(sampler.type)},
            {"base_rate", sampler.base_rate},
            {"min_bucket_size", sampler.min_bucket_size},
            {"max_rows", or_null(sampler.max_rows)}}},
          {"groups", groups},
          {"metadata", manifest.metadata},
          {"model_name", manifest.model_name},
          {"model_metadata", manifest.model_metadata},
          {"repo", manifest.repo},
          {"branch", manifest.branch},
          {"private", manifest.private_repo}};
}

Manifest manifest_from_json(const Json& json) {
  Manifest manifest;
  manifest.identity = json.at("identity");
  manifest.config_hash = json.at("config_hash");
  manifest.head_dim = json.at("head_dim");
  manifest.heads_per_key_head = json.at("heads_per_key_head");
  manifest.row_group_size = json.at("row_group_size");
  manifest.token_strings = json.at("token_strings");
  manifest.sampler = sampler_from_json(json.at("sampler"));
  for (const auto& group : json.at("groups")) manifest.groups.push_back(group_from_json(group));
  manifest.metadata = json.at("metadata").get<Metadata>();
  manifest.model_name = json.at("model_name");
  manifest.model_metadata = json.at("model_metadata");
  manifest.repo = json.at("repo");
  manifest.branch = json.at("branch");
  manifest.private_repo = json.value("private", false);
  return manifest;
}

}  // namespace qkscope
