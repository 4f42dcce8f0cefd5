#include "capture/format/manifest.h"

#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/mapped_file.h"
#include "capture/format/buckets.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

// Returns an integer JSON value. Throws a bad-input error unless it is in the range of T.
template <typename T>
T parse_integer_value(const Json& json, const std::string& where) {
  const bool fits = json.is_number_unsigned()
                        ? std::in_range<T>(json.get<std::uint64_t>())
                        : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
  if (fits) return json.get<T>();
  reject("{}: expected an integer, found {}", where, json.dump());
}

template <typename T>
std::optional<T> parse_optional_integer(const Json& json, const std::string& where) {
  if (json.is_null()) return {};
  return parse_integer_value<T>(json, where);
}

Json head_group_to_json(const HeadGroup& group) {
  Json json = {{"layer", group.layer}, {"kind", std::string(1, static_cast<char>(group.kind))},
               {"heads", group.heads}, {"window", value_or_null(group.window)},
               {"rope", group.rope},   {"rope_inv_freq", group.rope_inv_freq}};
  if (group.head_dim > 0) json["head_dim"] = group.head_dim;
  if (group.heads_per_key_head > 0) json["heads_per_key_head"] = group.heads_per_key_head;
  return json;
}

HeadGroup head_group_from_json(const Json& json, const std::string& where) {
  std::vector<std::int64_t> heads;
  for (const auto& head : json.at("heads").get<std::vector<Json>>())
    heads.push_back(parse_integer_value<std::int64_t>(head, where));
  const auto optional = [&](const char* name) {
    return json.contains(name) ? parse_integer_value<std::int64_t>(json[name], where) : 0;
  };
  return {.layer = parse_integer_value<std::int64_t>(json.at("layer"), where),
          .kind = json.at("kind") == "q" ? HeadKind::query : HeadKind::key,
          .heads = std::move(heads),
          .window = parse_optional_integer<std::int32_t>(json.at("window"), where),
          .rope = json.at("rope"),
          .rope_inv_freq = json.at("rope_inv_freq"),
          .head_dim = optional("head_dim"),
          .heads_per_key_head = optional("heads_per_key_head")};
}

constexpr char kFormat[] = "format";
constexpr int kFormatNumber = 2;  // common version of manifest, journal and segments
constexpr char kChecksum[] = "checksum";

// A valid checksum does not prove that this program wrote the manifest, so check value ranges too.
void check_manifest_ranges(const Manifest& manifest, const std::string& where) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 24;
  const auto expect = [&](const char* name, std::int64_t value) {
    if (value < 1 || value > kLargest)
      reject("{}: {} is {}; expected 1 to {}", where, name, value, kLargest);
  };
  expect("head_dim", manifest.head_dim);
  expect("heads_per_key_head", manifest.heads_per_key_head);
  expect("row_group_size", manifest.row_group_size);
  expect("groups", static_cast<std::int64_t>(manifest.groups.size()));
  if (manifest.sampler.min_bucket_size < 1)
    reject("{}: min_bucket_size is {}; expected 1 or more", where,
           manifest.sampler.min_bucket_size);
  for (const auto& group : manifest.groups) {
    expect("head_dim", manifest.head_dim_of(group));
    for (const auto number : group.heads)
      if (number < 0 || number > kLargest || group.layer < 0 || group.layer > kLargest)
        reject("{}: layer {}, head {}: expected 0 to {}", where, group.layer, number, kLargest);
  }
}

constexpr std::size_t kShownDifferences = 5;
constexpr std::size_t kShownValue = 60;  // longest JSON value in a message, in bytes

std::string shortened_json(const Json& value) {
  const auto text = value.dump();
  return text.size() <= kShownValue ? text : text.substr(0, kShownValue) + "...";
}

// Adds a line such as "capture.min_bucket_size: 128 there, 256 now" for each value that differs.
void append_differences(const Json& there, const Json& now, const std::string& path,
                        std::vector<std::string>& differences) {
  if (there == now) return;
  if (there.is_array() && now.is_array() && there.size() == now.size()) {
    for (std::size_t i = 0; i < there.size(); ++i)
      append_differences(there[i], now[i], fmt::format("{}[{}]", path, i), differences);
    return;
  }
  if (!there.is_object() || !now.is_object()) {
    differences.push_back(
        fmt::format("{}: {} there, {} now", path, shortened_json(there), shortened_json(now)));
    return;
  }
  Json all = there;
  all.update(now);
  for (const auto& [key, value] : all.items())
    append_differences(there.value(key, Json()), now.value(key, Json()),
                       path.empty() ? key : fmt::format("{}.{}", path, key), differences);
}

std::string join_differences(std::vector<std::string> differences) {
  if (differences.size() > kShownDifferences) {
    const auto more = differences.size() - kShownDifferences;
    differences.resize(kShownDifferences);
    differences.push_back(fmt::format("and {} more", more));
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

std::string describe_input_difference(const Json& there, const Json& now) {
  if (!there.is_object() || !now.is_object()) return "";
  const std::pair<const char*, const char*> kinds[] = {{"config", "the model's configuration"},
                                                       {"weights", "the model's weights"},
                                                       {"tokenizer", "the tokenizer"},
                                                       {"dataset", "the dataset"}};
  std::vector<std::string> changed;
  for (const auto& [kind, words] : kinds) {
    if (!there.contains(kind) || !now.contains(kind) || there[kind] == now[kind]) continue;
    Json all = there[kind];
    all.update(now[kind]);
    std::vector<std::string> names;  // files that were added, removed or changed
    for (const auto& [name, print] : all.items())
      if (there[kind].value(name, Json()) != now[kind].value(name, Json())) names.push_back(name);
    changed.push_back(
        fmt::format("{} changed since this run began ({})", words, fmt::join(names, ", ")));
  }
  return fmt::format("{}", fmt::join(changed, "; "));
}

Json without_keys(Json json, std::initializer_list<const char*> keys) {
  for (const auto* key : keys)
    if (json.is_object()) json.erase(key);
  return json;
}

}  // namespace

std::string config_hash(const Json& effective) {
  return fmt::format("{:016x}", blake2b_64(effective.dump()));
}

std::string describe_identity_difference(const Json& there, const Json& now) {
  std::vector<std::string> differences;
  append_differences(without_keys(there, {kInputs}), without_keys(now, {kInputs}), "", differences);
  if (!differences.empty())
    return fmt::format("the configuration differs ({})", join_differences(std::move(differences)));
  return describe_input_difference(there.value(kInputs, Json()), now.value(kInputs, Json()));
}

std::string describe_manifest_difference(const Manifest& there, const Manifest& now) {
  if (auto difference = describe_identity_difference(there.identity, now.identity);
      !difference.empty())
    return difference;
  const auto rest = [](const Manifest& manifest) {
    return without_keys(to_json(manifest), {"identity", "repo", "branch", "private"});
  };
  std::vector<std::string> differences;
  append_differences(rest(there), rest(now), "", differences);
  if (differences.empty()) return "";
  return fmt::format("what would be written differs ({})",
                     join_differences(std::move(differences)));
}

HeadId Manifest::head_id(const HeadGroup& group, std::int64_t head) const {
  return {static_cast<int>(group.layer), static_cast<int>(head), group.kind};
}

Metadata Manifest::head_file_metadata(const HeadGroup& group, std::int64_t head) const {
  Metadata all = metadata;
  all[metadata::kLayer] = std::to_string(group.layer);
  all[metadata::kHead] = std::to_string(head);
  all[metadata::kKind] = std::string(1, static_cast<char>(group.kind));
  if (group.kind == HeadKind::query)
    all[metadata::kKeyHead] = std::to_string(
        head / (group.heads_per_key_head > 0 ? group.heads_per_key_head : heads_per_key_head));
  all[metadata::kRope] = group.rope;
  if (!group.rope_inv_freq.empty()) all[metadata::kRopeInvFreq] = group.rope_inv_freq;
  add_sampler_metadata(all, sampler);
  all[metadata::kConfigHash] = config_hash;
  return all;
}

// JSON of fields without a range check; to_json() and manifest_from_json() convert the others.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Manifest, identity, config_hash, token_strings, metadata,
                                   model_name, model_metadata, repo, branch)

Json to_json(const Manifest& manifest) {
  Json json = manifest;
  json["head_dim"] = manifest.head_dim;
  json["heads_per_key_head"] = manifest.heads_per_key_head;
  json["row_group_size"] = manifest.row_group_size;
  json["private"] = manifest.private_repo;
  json["groups"] = Json::array();
  for (const auto& group : manifest.groups) json["groups"].push_back(head_group_to_json(group));
  const auto& sampler = manifest.sampler;
  json["sampler"] = {{"type", sampler_type_name(sampler.type)},
                     {"base_rate", sampler.base_rate},
                     {"min_bucket_size", sampler.min_bucket_size},
                     {"max_rows", value_or_null(sampler.max_rows)}};
  return json;
}

Manifest manifest_from_json(const Json& json, const std::string& where) {
  auto manifest = json.get<Manifest>();
  const auto integer = [&](const char* name) {
    return parse_integer_value<std::int64_t>(json.at(name), where);
  };
  manifest.head_dim = integer("head_dim");
  manifest.heads_per_key_head = integer("heads_per_key_head");
  manifest.row_group_size = integer("row_group_size");
  const auto& from = json.at("sampler");
  auto& sampler = manifest.sampler;
  sampler.type = sampler_type_from_name(from.at("type").get<std::string>()).value_or(sampler.type);
  sampler.base_rate = from.at("base_rate");
  sampler.min_bucket_size = parse_integer_value<std::int64_t>(from.at("min_bucket_size"), where);
  sampler.max_rows = parse_optional_integer<std::int64_t>(from.at("max_rows"), where);
  for (const auto& group : json.at("groups"))
    manifest.groups.push_back(head_group_from_json(group, where));
  manifest.private_repo = json.value("private", false);
  // describe_identity_difference() requires the identity and its inputs to be JSON objects.
  const auto expect_object = [&](const Json& object, const std::string& name) {
    if (!object.is_object()) reject("{}: {} is not an object", where, name);
  };
  const auto& identity = manifest.identity;
  expect_object(identity, "identity");
  const Json inputs = identity.value(kInputs, Json::object());
  expect_object(inputs, "identity.inputs");
  for (const auto& [kind, files] : inputs.items()) expect_object(files, "identity.inputs." + kind);
  check_manifest_ranges(manifest, where);
  return manifest;
}

std::string manifest_file_content(const Manifest& manifest) {
  Json json = to_json(manifest);
  json[kFormat] = kFormatNumber;
  json[kChecksum] = format_checksum(checksum_of(json.dump()));
  return json.dump(1) + "\n";
}

Manifest load_manifest(const std::string& path) {
  return parse_manifest_file(MappedFile(path).text(), path);
}

Manifest parse_manifest_file(std::string_view text, const std::string& where) {
  Json json = parse_json(text, where);
  try {
    if (json.value(kFormat, Json()) != kFormatNumber)
      reject(
          "{}: another version of qkscope began this capture; finish it with that version, or "
          "start again with --overwrite",
          where);
    const std::string checksum = json.at(kChecksum);
    json.erase(kChecksum);
    if (checksum != format_checksum(checksum_of(json.dump())))
      reject("{}: damaged: its checksum is not that of its content; start again with --overwrite",
             where);
    return manifest_from_json(json, where);
  } catch (const Json::exception& error) {
    reject("{}: damaged ({}); start again with --overwrite", where, error.what());
  }
}

}  // namespace qkscope
