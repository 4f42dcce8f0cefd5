#include "qkscope/captures.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Returns model_metadata of the state file. Older versions of qk-sniffer kept one entry per model.
const Json* details_of_model(const Json& state, CaptureIndex& index) {
  const auto details = state.find(metadata::kStateModelMetadata);
  if (details == state.end() || !details->is_object()) return nullptr;
  const auto one_per_model = [&] {
    return !details->empty() && std::all_of(details->begin(), details->end(),
                                            [](const Json& entry) { return entry.is_object(); });
  };
  if (!index.model.empty() || !one_per_model()) return &*details;
  const auto folder = fs::path(index.data_root).filename().string();
  for (auto entry = details->begin(); entry != details->end(); ++entry) {
    if (details->size() > 1 && entry->value("sanitized_split", Json()) != folder) continue;
    index.model = entry.key();
    return &*entry;
  }
  return nullptr;
}

std::int64_t number_in(const Json& details, const char* key) {
  const auto found = details.find(key);
  return found != details.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::optional<SamplerOptions> sampler_in(const Json& details) {
  const auto strategy = details.find(metadata::kStateSampling);
  if (strategy == details.end() || !strategy->is_string()) return {};
  SamplerOptions sampler;
  const bool log = *strategy == "log";
  if (log)
    sampler.type = SamplerType::log_uniform;
  else if (*strategy == "uniform")
    sampler.type = SamplerType::uniform;
  else if (*strategy == "all")
    sampler.type = SamplerType::all;
  else
    return {};
  sampler.min_bucket_size =
      number_in(details, log ? metadata::kStateLeastBucket : metadata::kStateBucketSize);
  if (sampler.min_bucket_size < 1) return {};
  return sampler;
}

void read_state(CaptureIndex& index, const std::string& folder) {
  const std::string path = folder + "/" + layout::kStateFile;
  if (!fs::exists(path)) return;
  const Json state = load_json(path);
  if (!state.is_object()) bad_input("{}: not a JSON object", path);
  if (const auto name = state.find(metadata::kStateModelName);
      name != state.end() && name->is_string())
    index.model = name->get<std::string>();
  const Json* details = details_of_model(state, index);
  if (details == nullptr) return;
  constexpr std::int64_t kMost = 1 << 20;
  const auto queries = number_in(*details, metadata::kStateQueryHeads);
  const auto keys = number_in(*details, metadata::kStateKeyHeads);
  if (queries > 0 && keys > 0 && queries <= kMost && keys <= kMost)
    index.counts = HeadCounts{static_cast<int>(queries), static_cast<int>(keys)};
  index.sampler = sampler_in(*details);
}

int grouped_key_head(int query_head, const HeadCounts& counts, const std::string& said_by) {
  if (counts.query_heads < 1 || counts.key_heads < 1 || counts.query_heads % counts.key_heads != 0)
    bad_input("{} query heads and {} key heads ({}): expected a multiple", counts.query_heads,
              counts.key_heads, said_by);
  if (query_head >= counts.query_heads)
    bad_input("query head {} does not exist among {} query heads ({})", query_head,
              counts.query_heads, said_by);
  return query_head / (counts.query_heads / counts.key_heads);
}

// The heads whose folders lie here.
std::vector<HeadId> heads_in(const fs::path& folder, fs::directory_options options = {}) {
  std::vector<HeadId> heads;
  for (const auto& entry : fs::directory_iterator(folder, options)) {
    if (!entry.is_directory()) continue;
    const auto id = parse_folder_name(entry.path().filename().string());
    if (id && fs::exists(entry.path() / layout::kHeadFile)) heads.push_back(*id);
  }
  return heads;
}

HeadsByFolder heads_by_folder(const std::string& data_root) {
  HeadsByFolder found;
  if (auto heads = heads_in(data_root); !heads.empty()) found[""] = std::move(heads);
  if (!found.empty()) return found;
  for (const auto& entry : fs::directory_iterator(data_root)) {
    if (!entry.is_directory()) continue;
    auto heads = heads_in(entry.path(), fs::directory_options::skip_permission_denied);
    if (!heads.empty()) found[entry.path().filename().string()] = std::move(heads);
  }
  return found;
}

CaptureIndex read_index(const std::string& data_root) {
  if (!fs::is_directory(data_root)) no_such_capture(data_root);
  auto heads = heads_by_folder(data_root);
  const auto folder = only_folder(heads, data_root, "/");
  return make_index(data_root, folder, std::move(heads[folder]), data_root);
}

int find_key_head(const CaptureIndex& index, const HeadId& query,
                  const std::optional<HeadCounts>& given) {
  const std::string path = head_file_path(index.data_root, query);
  const Metadata metadata = read_head_metadata(path);
  if (const auto stated = metadata.find(metadata::kKeyHead); stated != metadata.end())
    return static_cast<int>(parse_integer(stated->second, path + ": " + metadata::kKeyHead));
  if (given) return grouped_key_head(query.head, *given, "--q-heads and --k-heads, or --model");
  if (index.counts) return grouped_key_head(query.head, *index.counts, layout::kStateFile);
  bad_input(
      "{}: nothing says which key head this head reads; name its model (--model), or give the "
      "model's --q-heads and --k-heads",
      path);
}

}  // namespace

void no_such_capture(const std::string& name) {
  bad_input(
      "{}: there is no such folder; a capture on the Hugging Face Hub is named REPO@BRANCH, such "
      "as org/name@main",
      name);
}

std::string only_folder(const HeadsByFolder& heads, const std::string& where,
                        const std::string& separator) {
  if (heads.empty())
    bad_input("{}: no query heads here; expected folders such as l00h00q with {}", where,
              layout::kHeadFile);
  if (heads.size() == 1 || heads.contains("")) return heads.begin()->first;
  std::vector<std::string> names;
  for (const auto& [folder, list] : heads) names.push_back(folder);
  bad_input("{}: holds the captures of {} models ({}); name one of them: {}{}{}", where,
            names.size(), fmt::join(names, ", "), where, separator, names.front());
}

CaptureIndex make_index(const std::string& root, const std::string& folder,
                        std::vector<HeadId> heads, const std::string& where) {
  CaptureIndex index;
  index.data_root = folder.empty() ? root : root + "/" + folder;
  std::sort(heads.begin(), heads.end());
  for (const auto& id : heads)
    (id.kind == HeadKind::query ? index.queries : index.keys).push_back(id);
  if (index.queries.empty())
    bad_input("{}: no query heads here; expected folders such as l00h00q with {}", where,
              layout::kHeadFile);
  const bool own = fs::exists(index.data_root + "/" + layout::kStateFile);
  read_state(index, own ? index.data_root : root);
  return index;
}

CaptureIndex index_capture(const std::string& data_root) {
  return translate_exceptions([&] { return read_index(data_root); });
}

int key_head_of(const CaptureIndex& index, const HeadId& query,
                const std::optional<HeadCounts>& given) {
  return translate_exceptions([&] { return find_key_head(index, query, given); });
}

}  // namespace qkscope
