#include "input/store/stored_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/http.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr char kSuffix[] = ".json";
constexpr std::size_t kDigits = 8;

// Returns all files in a folder except hidden ones, which are temporary.
std::vector<std::string> list_visible_files(const std::string& folder) {
  std::vector<std::string> names;
  auto entries = fs::recursive_directory_iterator(folder);
  for (auto it = fs::begin(entries); it != fs::end(entries); ++it) {
    if (it->path().filename().string().starts_with('.')) {
      it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file()) names.push_back(it->path().lexically_relative(folder).string());
  }
  std::ranges::sort(names);
  return names;
}

bool have_same_files(const StoredManifest& a, const StoredManifest& b) {
  return std::ranges::equal(a.files, b.files, [](const ManifestEntry& x, const ManifestEntry& y) {
    return x.name == y.name && x.content == y.content;
  });
}

[[noreturn]] void throw_invalid_manifest(const std::string& where, const std::string& why) {
  reject("{}: is no manifest that this version of qkscope wrote: {}", where, why);
}

}  // namespace

std::string versioned_object_name(const std::string& prefix, std::size_t number) {
  return fmt::format("{}/{:08}{}", prefix, number, kSuffix);
}

std::optional<std::size_t> parse_object_version(const std::string& name) {
  const auto file = fs::path(name).filename().string();
  if (file.size() != kDigits + sizeof(kSuffix) - 1 || !file.ends_with(kSuffix)) return {};
  return parse_number<std::size_t>(std::string_view(file).substr(0, kDigits));
}

std::optional<VersionedObject> read_newest_object(ObjectStore& store, const std::string& prefix) {
  const auto objects = store.list(prefix);
  for (auto it = objects.rbegin(); it != objects.rend(); ++it) {
    const auto number = parse_object_version(it->name);
    if (!number) continue;
    auto content = store.read(it->name);
    // List again: the object was replaced by a newer one before it could be read.
    if (!content) return read_newest_object(store, prefix);
    return VersionedObject{*number, std::move(*content)};
  }
  return {};
}

Json to_json(const ManifestEntry& file) {
  return {{"name", file.name},
          {"object", file.object},
          {"bytes", file.content.bytes},
          {"checksum", file.content.checksum}};
}

ManifestEntry parse_manifest_entry(const Json& json, const std::string& where) {
  ManifestEntry file{.name = json.at("name"),
                     .object = json.at("object"),
                     .content = {json.at("bytes"), json.at("checksum")}};
  if (!is_normalized_relative_path(file.name) || !is_normalized_relative_path(file.object))
    reject("{}: names {}, which lies outside of the folder", where, quote_text(file.name));
  return file;
}

const ManifestEntry* StoredManifest::find_file(const std::string& name) const {
  const auto found = std::ranges::find(files, name, &ManifestEntry::name);
  return found == files.end() ? nullptr : &*found;
}

std::string serialize_manifest(const StoredManifest& manifest) {
  Json json = {{"format", kFormat}, {"kind", manifest.kind}, {"run", manifest.run}};
  json["files"] = Json::array();
  for (const auto& file : manifest.files) json["files"].push_back(to_json(file));
  json["checksum"] = format_checksum(checksum_of(json.dump()));
  return json.dump(1) + "\n";
}

StoredManifest parse_manifest(const std::string& text, const std::string& where) {
  auto json = parse_json(text, where);
  try {
    if (json.at("format") != kFormat)
      throw_invalid_manifest(
          where, fmt::format("its format is {}, expected {}", json["format"].dump(), kFormat));
    const std::string checksum = json.at("checksum");
    json.erase("checksum");
    if (checksum != format_checksum(checksum_of(json.dump())))
      throw_invalid_manifest(where, "its checksum is another");
    StoredManifest manifest{.kind = json.at("kind"), .run = json.at("run"), .files = {}};
    for (const auto& file : json.at("files"))
      manifest.files.push_back(parse_manifest_entry(file, where));
    return manifest;
  } catch (const Json::exception& error) {
    throw_invalid_manifest(where, error.what());
  }
}

StoredFolder::StoredFolder(const StoreUri& address) : store_(open_store(address)) {
  read_newest_manifest();
}

void StoredFolder::read_newest_manifest() {
  next_ = 0;
  manifest_ = {.kind = StoredManifest::kRemoved, .run = "", .files = {}};
  const auto newest = read_newest_object(*store_, store_layout::kManifests);
  if (!newest) return;
  next_ = newest->number + 1;
  hash_ = fmt::format("{:016x}", blake2b_64(newest->content));
  manifest_ = parse_manifest(newest->content, store_->object_address(versioned_object_name(
                                                  store_layout::kManifests, newest->number)));
}

std::vector<std::string> StoredFolder::file_names() const {
  return to_vector(manifest_.files, &ManifestEntry::name);
}

void StoredFolder::fetch_files(const std::vector<std::string>& names, bool quiet) const {
  const auto folder = local_folder();
  make_folders(folder);
  std::vector<ObjectDownload> missing;
  for (const auto& name : names) {
    const auto* file = manifest_.find_file(name);
    const auto path = (fs::path(folder) / name).string();
    std::error_code none;
    if (file != nullptr && fs::file_size(path, none) != file->content.bytes)
      missing.push_back({file->object, path, file->content});
  }
  download_objects(*store_, missing, quiet);
}

bool StoredFolder::put_manifest(const StoredManifest& manifest) {
  return store_->put_if_absent(versioned_object_name(store_layout::kManifests, next_),
                               serialize_manifest(manifest));
}

void StoredFolder::upload_files(const std::string& folder, const std::string& prefix, bool quiet,
                                StoredManifest& manifest) const {
  if (manifest.files.empty()) return;
  const auto sizes = to_vector(manifest.files, [&](const auto& file) -> std::uint64_t {
    return fs::file_size(fs::path(folder) / file.name);
  });
  TransferProgress meter("upload", sizes, quiet);
  run_transfers(manifest.files.size(), [&](std::size_t i, const std::atomic<bool>&) {
    auto& file = manifest.files[i];
    meter.update(i, 0);
    file.content = store_->put(file.object, folder + "/" + file.name);
    meter.update(i, file.content.bytes);
  });
  // Verify sizes in the store before the manifest references the uploaded files.
  std::map<std::string, std::uint64_t> stored;
  for (const auto& object : store_->list(prefix)) stored[object.name] = object.bytes;
  for (const auto& file : manifest.files) {
    const auto found = stored.find(file.object);
    if (found == stored.end() || found->second != file.content.bytes)
      throw_failure("{}: {} bytes were put, but the store has {}; run the same command again",
                    store_->object_address(file.object), file.content.bytes,
                    found == stored.end() ? "no such object" : std::to_string(found->second));
  }
}

bool StoredFolder::try_publish(const FolderUpload& upload) {
  const auto prefix = fmt::format("{}/{}", store_layout::kFiles, make_timestamped_id());
  StoredManifest manifest{.kind = upload.kind, .run = upload.run, .files = {}};
  std::set<std::string> in_store;
  for (const auto& file : upload.in_store) in_store.insert(file.name);
  const auto without = upload.without + "/";
  for (const auto& name : list_visible_files(upload.folder)) {
    const bool left_out = !upload.without.empty() && name.starts_with(without);
    if (left_out || in_store.contains(name)) continue;
    manifest.files.push_back(
        {.name = name, .object = fmt::format("{}/{}", prefix, name), .content = {}});
  }
  const bool uploads = !manifest.files.empty();
  upload_files(upload.folder, prefix, upload.quiet, manifest);
  manifest.files.insert(manifest.files.end(), upload.in_store.begin(), upload.in_store.end());
  std::ranges::sort(manifest.files, {}, &ManifestEntry::name);
  if (!uploads && manifest_.kind == upload.kind && have_same_files(manifest_, manifest))
    return true;
  const bool first = put_manifest(manifest);
  read_newest_manifest();
  return first || (manifest_.kind == upload.kind && have_same_files(manifest_, manifest));
}

void StoredFolder::publish(const std::string& folder, const std::string& kind,
                           const std::string& run, bool quiet) {
  if (try_publish({.folder = folder, .kind = kind, .run = run, .quiet = quiet})) return;
  reject(
      "{}: another writer put its {} there in the meantime; what is there is theirs, and this "
      "one's upload is garbage that 'qkscope gc {}' removes",
      address().to_string(), kind, address().to_string());
}

void StoredFolder::mark_removed(const std::string& run) {
  const bool first = put_manifest({.kind = StoredManifest::kRemoved, .run = run, .files = {}});
  read_newest_manifest();
  if (!first && is_published())
    reject("{}: another writer replaced it in the meantime; run the same command again",
           address().to_string());
}

StoredFolder open_stored_folder(const StoreUri& address) {
  StoredFolder folder(address);
  if (folder.is_published()) return folder;
  if (!folder.object_store().list(store_layout::kParts).empty())
    reject(
        "{}: is not finished: parts of a run are there, but no manifest; wait for its end, or "
        "'qkscope merge' it when all shards are done",
        address.to_string());
  reject("{}: nothing that qkscope wrote is there (no {}/)", address.to_string(),
         store_layout::kManifests);
}

std::string fetch_stored_folder(const std::string& path_or_uri, bool quiet) {
  const auto address = parse_store_uri(path_or_uri);
  if (!address) return path_or_uri;
  const auto folder = open_stored_folder(*address);
  folder.fetch_all_files(quiet);
  return folder.local_folder();
}

}  // namespace qkscope
