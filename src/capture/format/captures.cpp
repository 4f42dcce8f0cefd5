#include "qkscope/captures.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/file_list.h"
#include "base/io/json.h"
#include "capture/format/buckets.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Returns model_metadata from the state file. Old versions of qk-sniffer wrote one entry per model.
const Json* find_model_metadata(const Json& state, CaptureIndex& index) {
  const auto details = state.find(metadata::kStateModelMetadata);
  if (details == state.end() || !details->is_object()) return nullptr;
  const bool one_per_model = std::all_of(details->begin(), details->end(),
                                         [](const Json& entry) { return entry.is_object(); });
  if (!index.model.empty() || !one_per_model) return &*details;
  const auto folder = fs::path(index.data_root).filename().string();
  for (auto entry = details->begin(); entry != details->end(); ++entry) {
    if (details->size() > 1 && entry->value("sanitized_split", Json()) != folder) continue;
    index.model = entry.key();
    return &*entry;
  }
  return nullptr;
}

std::int64_t integer_or_zero(const Json& details, const char* key) {
  const auto found = details.find(key);
  return found != details.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string text_or_empty(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<SamplerOptions> sampler_from_state(const Json& details) {
  const auto strategy = text_or_empty(details, metadata::kStateSampling);
  const bool log = strategy == "log";
  const auto type = sampler_type_from_name(log ? "log_uniform" : strategy);
  if (!type || strategy == "log_uniform") return {};
  SamplerOptions sampler;
  sampler.type = *type;
  sampler.min_bucket_size =
      integer_or_zero(details, log ? metadata::kStateLeastBucket : metadata::kStateBucketSize);
  if (sampler.min_bucket_size < 1) return {};
  return sampler;
}

// Describes how the head files differ from the file list of the finished run. Returns "" if they
// agree, or if there is no list, as in captures of older versions and other programs.
std::string describe_file_list_difference(const CaptureIndex& index, const Json& state,
                                          const std::string& where) {
  const auto files = parse_file_list(state, where);
  if (!files) return "";
  std::set<std::string> present;
  for (const auto* heads : {&index.queries, &index.keys})
    for (const auto& head : *heads) {
      const auto name = head_folder_name(head) + "/" + layout::kHeadFile;
      const auto listed = files->find(name);
      if (listed == files->end()) return name + " is of another run";
      std::error_code not_downloaded;
      const auto size = fs::file_size(fs::path(index.data_root) / name, not_downloaded);
      if (!not_downloaded && size != listed->second.size)
        return fmt::format("{} has {} bytes, expected {}", name, size, listed->second.size);
      present.insert(name);
    }
  for (const auto& [name, record] : *files)
    if (name.ends_with(layout::kHeadFile) && !present.contains(name)) return name + " is missing";
  return "";
}

void check_capture_complete(CaptureIndex& index, const std::string& problem, bool allow_partial) {
  if (problem.empty()) return;
  if (!allow_partial)
    reject(
        "{}: not a whole capture: {}; run the capture again, or add --partial to take the "
        "heads that are there",
        index.data_root, problem);
  index.partial = true;
}

void read_state_file(CaptureIndex& index, const std::string& folder, bool allow_partial) {
  const std::string path = folder + "/" + layout::kStateFile;
  if (!fs::exists(path)) {
    const bool unfinished = fs::exists(folder + "/" + layout::kPartsFolder);
    return check_capture_complete(index, unfinished ? "its run has not finished" : "",
                                  allow_partial);
  }
  const Json state = load_json(path);
  if (!state.is_object()) reject("{}: not a JSON object", path);
  index.config_hash = text_or_empty(state, metadata::kStateConfigurationHash);
  check_capture_complete(index, describe_file_list_difference(index, state, path), allow_partial);
  index.model = text_or_empty(state, metadata::kStateModelName);
  const Json* details = find_model_metadata(state, index);
  if (details == nullptr) return;
  constexpr std::int64_t kMost = 1 << 20;
  const auto queries = integer_or_zero(*details, metadata::kStateQueryHeads);
  const auto keys = integer_or_zero(*details, metadata::kStateKeyHeads);
  if (queries > 0 && keys > 0 && queries <= kMost && keys <= kMost)
    index.counts = HeadCounts{static_cast<int>(queries), static_cast<int>(keys)};
  index.sampler = sampler_from_state(*details);
}

int key_head_of_query(int query_head, const HeadCounts& counts, const std::string& said_by) {
  if (counts.query_heads < 1 || counts.key_heads < 1 || counts.query_heads % counts.key_heads != 0)
    reject("{} query heads and {} key heads ({}): expected a multiple", counts.query_heads,
           counts.key_heads, said_by);
  if (query_head >= counts.query_heads)
    reject("query head {} does not exist among {} query heads ({})", query_head, counts.query_heads,
           said_by);
  return query_head / (counts.query_heads / counts.key_heads);
}

std::vector<HeadId> list_folder_heads(const fs::path& folder, fs::directory_options options = {}) {
  std::vector<HeadId> heads;
  for (const auto& entry : fs::directory_iterator(folder, options)) {
    if (!entry.is_directory()) continue;
    const auto id = parse_head_folder_name(entry.path().filename().string());
    if (id && fs::exists(entry.path() / layout::kHeadFile)) heads.push_back(*id);
  }
  return heads;
}

HeadsByFolder find_heads_by_folder(const std::string& data_root) {
  if (auto heads = list_folder_heads(data_root); !heads.empty()) return {{"", std::move(heads)}};
  HeadsByFolder found;
  for (const auto& entry : fs::directory_iterator(data_root)) {
    if (!entry.is_directory()) continue;
    auto heads = list_folder_heads(entry.path(), fs::directory_options::skip_permission_denied);
    if (!heads.empty()) found[entry.path().filename().string()] = std::move(heads);
  }
  return found;
}

}  // namespace

void throw_no_such_capture(const std::string& name) {
  reject(
      "{}: there is no such folder; a capture on the Hugging Face Hub is named REPO@BRANCH, such "
      "as org/name@main",
      name);
}

std::string require_single_head_folder(const HeadsByFolder& heads, const std::string& where,
                                       const std::string& separator) {
  if (heads.empty() || heads.contains("")) return "";
  if (heads.size() == 1) return heads.begin()->first;
  const auto names = collect_map_keys(heads);
  reject("{}: holds the captures of {} models ({}); name one of them: {}{}{}", where, names.size(),
         fmt::join(names, ", "), where, separator, names.front());
}

CaptureIndex make_capture_index(const std::string& root, const std::string& folder,
                                std::vector<HeadId> heads, const std::string& where,
                                bool allow_partial) {
  CaptureIndex index;
  index.data_root = folder.empty() ? root : root + "/" + folder;
  std::ranges::sort(heads);
  for (const auto& id : heads)
    (id.kind == HeadKind::query ? index.queries : index.keys).push_back(id);
  if (index.queries.empty())
    reject("{}: no query heads here; expected folders such as l00h00q with {}", where,
           layout::kHeadFile);
  const bool own = fs::exists(index.data_root + "/" + layout::kStateFile);
  read_state_file(index, own ? index.data_root : root, allow_partial);
  return index;
}

void check_head_metadata(const CaptureIndex& index, const HeadId& id, const Metadata& metadata) {
  const auto expect = [&](const char* key, const std::string& expected) {
    const auto found = metadata.find(key);
    if (found != metadata.end() && !expected.empty() && found->second != expected)
      reject("{}: its metadata say {} {}, expected {}: the file is of another head or run",
             head_file_path(index.data_root, id), key, quote_text(found->second), expected);
  };
  expect(metadata::kLayer, std::to_string(id.layer));
  expect(metadata::kHead, std::to_string(id.head));
  expect(metadata::kKind, std::string(1, static_cast<char>(id.kind)));
  expect(metadata::kConfigHash, index.config_hash);
}

HeadFile read_capture_head(const CaptureIndex& index, const HeadId& id) {
  HeadFile file = read_head_file(head_file_path(index.data_root, id));
  check_head_metadata(index, id, file.metadata);
  return file;
}

CaptureIndex index_capture(const std::string& data_root, bool allow_partial) {
  return translate_exceptions([&] {
    if (!fs::is_directory(data_root)) throw_no_such_capture(data_root);
    auto heads = find_heads_by_folder(data_root);
    const auto folder = require_single_head_folder(heads, data_root, "/");
    return make_capture_index(data_root, folder, std::move(heads[folder]), data_root,
                              allow_partial);
  });
}

int key_head_of(const CaptureIndex& index, const HeadId& query,
                const std::optional<HeadCounts>& given) {
  return translate_exceptions([&] {
    const std::string path = head_file_path(index.data_root, query);
    const Metadata metadata = read_head_metadata(path);
    if (const auto stated = metadata.find(metadata::kKeyHead); stated != metadata.end())
      return static_cast<int>(parse_integer(stated->second, path + ": " + metadata::kKeyHead));
    if (given) return key_head_of_query(query.head, *given, "--q-heads and --k-heads, or --model");
    if (index.counts) return key_head_of_query(query.head, *index.counts, layout::kStateFile);
    reject(
        "{}: nothing says which key head this head reads; name its model (--model), or give the "
        "model's --q-heads and --k-heads",
        path);
  });
}

std::string to_string(RopeUse use) {
  constexpr const char* kNames[] = {"rope", "nope", "unknown"};
  return kNames[static_cast<std::size_t>(use)];
}

std::string attention_name(const std::optional<std::int32_t>& window) {
  return window ? "sliding:" + std::to_string(*window) : "full";
}

std::string id_or_base_name(const std::string& id_or_path) {
  std::string_view text = id_or_path;
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  const bool id = text.find_first_of("./~") != 0 && std::ranges::count(text, '/') <= 1;
  return std::string(id ? text : text.substr(text.rfind('/') + 1));
}

std::vector<double> unscaled_inv_freq(double theta, int dim) {
  std::vector<double> frequencies;
  frequencies.reserve(as_index(dim / 2));
  for (int i = 0; i < dim / 2; ++i) frequencies.push_back(std::pow(theta, -2.0 * i / dim));
  return frequencies;
}

RopeInfo rope_info(const Metadata& metadata, const std::string& where) {
  return translate_exceptions([&] {
    RopeInfo info;
    const auto rope = metadata.find(metadata::kRope);
    if (rope == metadata.end()) return info;
    if (rope->second == metadata::kRopeNone) {
      info.use = RopeUse::nope;
      return info;
    }
    info.use = RopeUse::rope;
    const Json description = parse_json(rope->second, where + " (" + metadata::kRope + ")");
    if (const auto listed = metadata.find(metadata::kRopeInvFreq); listed != metadata.end()) {
      const bool zeros = description.is_object() && description.contains("rotated_pairs");
      const Json list = parse_json(listed->second, where + " (" + metadata::kRopeInvFreq + ")");
      if (!list.is_array()) reject("{}: '{}' is not a list", where, metadata::kRopeInvFreq);
      for (const auto& item : list) {
        if (!item.is_number() || !(item.get<double>() > 0 || (zeros && item == 0)))
          reject("{}: '{}' holds {}; expected positive numbers", where, metadata::kRopeInvFreq,
                 item.dump());
        info.inv_freq.push_back(item.get<double>());
      }
    } else if (description.is_object() && description.contains("theta") &&
               description.contains("dim") && description["theta"].is_number() &&
               description["dim"].is_number_integer()) {
      constexpr std::int64_t kWidest = 1 << 16;
      const auto theta = description["theta"].get<double>();
      const auto dim = description["dim"].get<std::int64_t>();
      if (!(theta > 1.0) || theta > 1e15 || dim < 2 || dim > kWidest)
        reject("{}: '{}' has theta {} and dim {}; expected theta from 1 to 1e15, dim from 2 to {}",
               where, metadata::kRope, theta, dim, kWidest);
      info.inv_freq = unscaled_inv_freq(theta, static_cast<int>(dim));
    }
    std::ranges::sort(info.inv_freq, std::greater<>());
    return info;
  });
}

std::optional<SamplerOptions> sampler_options(const Metadata& metadata, const std::string& where) {
  return translate_exceptions([&]() -> std::optional<SamplerOptions> {
    const auto type = metadata.find(metadata::kSampler);
    const auto rate = metadata.find(metadata::kBaseRate);
    const auto size = metadata.find(metadata::kMinBucketSize);
    if (type == metadata.end() || rate == metadata.end() || size == metadata.end()) return {};
    const auto named = [&](const char* key) { return where + ": " + key; };
    const auto known = sampler_type_from_name(type->second);
    if (!known)
      reject("{}: found {}, expected log_uniform, uniform or all", named(metadata::kSampler),
             quote_text(type->second));
    SamplerOptions sampler;
    sampler.type = *known;
    const Json base_rate = parse_json(rate->second, named(metadata::kBaseRate));
    if (!base_rate.is_number() || !(base_rate.get<double>() > 0))
      reject("{}: found {}, expected a number above 0", named(metadata::kBaseRate),
             quote_text(rate->second));
    sampler.base_rate = base_rate.get<double>();
    sampler.min_bucket_size = parse_integer(size->second, named(metadata::kMinBucketSize));
    if (sampler.min_bucket_size < 1)
      reject("{}: found {}, expected 1 or more", named(metadata::kMinBucketSize), size->second);
    return sampler;
  });
}

void add_sampler_metadata(Metadata& metadata, const SamplerOptions& sampler) {
  metadata[metadata::kSampler] = sampler_type_name(sampler.type);
  metadata[metadata::kBaseRate] = fmt::format("{}", sampler.base_rate);
  metadata[metadata::kMinBucketSize] = std::to_string(sampler.min_bucket_size);
}

}  // namespace qkscope
