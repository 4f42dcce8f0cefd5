#include "qkscope/captures.h"

#include <algorithm>
#include <filesystem>

#include "captures/layout.h"
#include "captures/metadata.h"
#include "core/edge.h"
#include "core/error.h"
#include "core/text.h"
#include "io/json.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

void read_state(CaptureIndex& index) {
  const std::string path = index.data_root + "/" + layout::kStateFile;
  if (!fs::exists(path)) return;
  const Json state = load_json(path);
  if (!state.is_object()) bad_input("{}: not a JSON object", path);
  if (const auto name = state.find(metadata::kStateModelName);
      name != state.end() && name->is_string())
    index.model = name->get<std::string>();
  const auto details = state.find(metadata::kStateModelMetadata);
  if (details == state.end() || !details->is_object()) return;
  const auto number = [&](const char* key) {
    const auto found = details->find(key);
    return found != details->end() && found->is_number_integer() ? found->get<int>() : 0;
  };
  const HeadCounts counts{number(metadata::kStateQueryHeads), number(metadata::kStateKeyHeads)};
  if (counts.query_heads > 0 && counts.key_heads > 0) index.counts = counts;
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

CaptureIndex read_index(const std::string& data_root) {
  if (!fs::is_directory(data_root)) bad_input("{}: there is no such folder", data_root);
  CaptureIndex index;
  index.data_root = data_root;
  for (const auto& entry : fs::directory_iterator(data_root)) {
    if (!entry.is_directory()) continue;
    const auto id = parse_folder_name(entry.path().filename().string());
    if (!id || !fs::exists(entry.path() / layout::kHeadFile)) continue;
    (id->kind == HeadKind::query ? index.queries : index.keys).push_back(*id);
  }
  if (index.queries.empty())
    bad_input("{}: no query heads here; expected folders such as l00h00q with {}", data_root,
              layout::kHeadFile);
  std::sort(index.queries.begin(), index.queries.end());
  std::sort(index.keys.begin(), index.keys.end());
  read_state(index);
  return index;
}

int find_key_head(const CaptureIndex& index, const HeadId& query,
                  const std::optional<HeadCounts>& given) {
  const std::string path = head_file_path(index.data_root, query);
  const Metadata metadata = read_head_metadata(path);
  if (const auto stated = metadata.find(metadata::kKeyHead); stated != metadata.end())
    return static_cast<int>(parse_integer(stated->second, path + ": " + metadata::kKeyHead));
  if (given) return grouped_key_head(query.head, *given, "--q-heads, --k-heads");
  if (index.counts) return grouped_key_head(query.head, *index.counts, layout::kStateFile);
  bad_input(
      "{}: nothing says which key head this head reads; give the model's --q-heads and "
      "--k-heads",
      path);
}

}  // namespace

CaptureIndex index_capture(const std::string& data_root, Version headers) {
  return at_edge([&] {
    check_version(headers);
    return read_index(data_root);
  });
}

int key_head_of(const CaptureIndex& index, const HeadId& query,
                const std::optional<HeadCounts>& given) {
  return at_edge([&] { return find_key_head(index, query, given); });
}

}  // namespace qkscope
