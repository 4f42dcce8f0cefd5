// Implements qkscope/experimental/store.h.
#include "qkscope/experimental/store.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "input/hub/http.h"
#include "input/store/stored_folder.h"

namespace qkscope {
namespace {

StoreAddress require_store_address(const std::string& text) {
  const auto address = parse_store_address(text);
  if (!address)
    bad_input(
        "{}: not an address of an object store; expected s3://bucket/path, gs://bucket/path "
        "or file:///path",
        text);
  return *address;
}

constexpr std::size_t kMostObjects = 100'000;

bool has_weight_extension(const std::string& name) {
  constexpr const char* kExtensions[] = {".safetensors", ".bin", ".gguf", ".pt", ".pth"};
  return std::ranges::any_of(kExtensions, [&](const char* end) { return name.ends_with(end); });
}

// Size and modification time, which identify a version of an object.
Json object_version(const StoredObject& object) {
  return {{"bytes", object.bytes}, {"modified", object.modified}};
}

// Downloads objects into a folder and records their versions next to it.
void fetch_objects(ObjectStore& store, const std::vector<StoredObject>& objects,
                   const std::string& folder, const FetchOptions& options) {
  const auto listing_file = folder + ".json";
  make_folders(folder);
  Json listing = path_exists(listing_file) ? load_json(listing_file) : Json::object();
  std::vector<ObjectDownload> missing;
  for (const auto& object : objects) {
    if (!options.weights && has_weight_extension(object.name)) continue;
    const auto path = folder + "/" + object.name;
    if (listing.value(object.name, Json()) == object_version(object) && path_exists(path)) continue;
    missing.push_back({object.name, path, {object.bytes, ""}});
    listing[object.name] = object_version(object);
  }
  if (missing.empty()) return;
  download_objects(store, missing, options.quiet);
  write_file(listing_file, listing.dump(1) + "\n");
}

// Fetches an address that names either a folder of objects or a single object.
std::string fetch_plain_objects(const StoreAddress& address, const FetchOptions& options) {
  const auto place = scratch_folder_of_downloads(address) + "/input";
  const auto store = open_store(address);
  const auto objects = store->list("");
  if (objects.size() > kMostObjects)
    bad_input("{}: has {} objects; expected those of a checkpoint or a dataset",
              address.to_string(), objects.size());
  if (!objects.empty()) {
    const auto folder = place + "/" + address.last_path_component();
    fetch_objects(*store, objects, folder, options);
    return folder;
  }
  auto parent = address;
  parent.path.resize(address.path.rfind('/') == std::string::npos ? 0 : address.path.rfind('/'));
  const auto parent_store = open_store(parent);
  const auto object = parent_store->find(address.last_path_component());
  if (!object) bad_input("{}: nothing is there", address.to_string());
  fetch_objects(*parent_store, {*object}, place, options);
  return place + "/" + object->name;
}

using store_layout::kFiles, store_layout::kManifests, store_layout::kParts, store_layout::kRuns;

// Matches the names of make_unique_name(): "20261116T130501-9f3a01c2d4e5f607".
bool is_unique_name(const std::string& name) {
  constexpr const char* kDecimal = "0123456789";
  return name.size() == 32 && name[8] == 'T' && name[15] == '-' &&
         name.find_first_not_of(kDecimal) == 8 && name.find_first_not_of(kDecimal, 9) == 15 &&
         name.find_first_not_of("0123456789abcdef", 16) == std::string::npos;
}

// Returns the stored folder ("" or "path/") of an object; nullopt for a name not made by qkscope.
std::optional<std::string> stored_folder_of(std::string name) {
  if (name.ends_with(kLeaseSuffix)) name.resize(name.size() - sizeof(kLeaseSuffix) + 1);
  const auto steps = split(name, '/');
  std::string root;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto& next = steps[i + 1];
    const bool last = i + 2 == steps.size();
    if (steps[i] == kManifests && last && parse_object_number(next)) return root;
    if ((steps[i] == kFiles || steps[i] == kParts) && !last && is_unique_name(next)) return root;
    if (steps[i] == kParts && next == kRuns && i + 3 == steps.size() &&
        parse_object_number(steps[i + 2]))
      return root;
    root += steps[i] + "/";
  }
  return {};
}

// Collects the values of all "object" keys recursively.
void collect_objects(const Json& json, const std::string& root, std::set<std::string>& referenced) {
  if (json.is_object() && json.contains("object") && json["object"].is_string())
    referenced.insert(root + json["object"].get<std::string>());
  if (json.is_structured())
    for (const auto& inner : json) collect_objects(inner, root, referenced);
}

// Adds the newest of the numbered objects below `prefix` to `referenced` and returns its content.
Json add_newest_name(ObjectStore& store, const std::string& prefix,
                     std::set<std::string>& referenced) {
  const auto newest = read_newest_object(store, prefix);
  if (!newest) return {};
  const auto name = numbered_object_name(prefix, newest->number);
  referenced.insert(name);
  return parse_json(newest->content, store.object_address(name));
}

// Adds the objects that the stored folder `root` still needs. All folders share one set, because
// the manifest of a sweep references files of the folders below it.
void add_referenced_objects(ObjectStore& store, const std::string& root,
                            const std::vector<StoredObject>& objects,
                            std::set<std::string>& referenced) {
  const auto manifest = add_newest_name(store, root + kManifests, referenced);
  collect_objects(manifest, root, referenced);
  const auto runs = root + kParts + "/" + kRuns;
  const auto run = add_newest_name(store, runs, referenced);
  if (!run.is_object()) return;
  const auto name = run.value("run", "");
  if (name.empty() || (manifest.is_object() && manifest.value("run", "") == name)) {
    std::erase_if(referenced, [&](const auto& each) { return each.starts_with(runs); });
    return;
  }
  const auto parts = root + kParts + "/" + name + "/";
  for (const auto& object : objects) {
    if (!object.name.starts_with(parts) || !object.name.ends_with(".json")) continue;
    referenced.insert(object.name);
    if (const auto text = store.read(object.name))
      collect_objects(parse_json(*text, store.object_address(object.name)), root, referenced);
  }
}

}  // namespace

bool is_store_address(const std::string& path_or_address) {
  return translate_exceptions([&] { return parse_store_address(path_or_address).has_value(); });
}

void check_store(const std::string& path_or_address) {
  translate_exceptions([&] {
    if (const auto address = parse_store_address(path_or_address)) open_store(*address);
  });
}

std::string fetch_stored(const std::string& path_or_address, bool quiet) {
  return translate_exceptions([&] { return fetch_stored_folder(path_or_address, quiet); });
}

// Downloads an object again if its size or modification time changed, but only once per process, so
// that inputs stay constant during a run.
std::string fetch_input(const std::string& path_or_address, const FetchOptions& options) {
  return translate_exceptions([&] {
    const auto address = parse_store_address(path_or_address);
    if (!address) return path_or_address;
    if (address->scheme == StoreAddress::AddressScheme::file) return address->arrow_path();
    static std::mutex mutex;
    static std::map<std::string, std::string> fetched;
    const std::lock_guard lock(mutex);
    const auto key = address->to_string() + (options.weights ? "" : " without weights");
    auto found = fetched.find(key);
    if (found == fetched.end())
      found = fetched.emplace(key, fetch_plain_objects(*address, options)).first;
    return found->second;
  });
}

struct StoredOutput::State {
  std::string folder;
  std::string kind;
  std::unique_ptr<StoredFolder> stored;  // null for a local folder
};

StoredOutput::StoredOutput(const std::string& path_or_address, const std::string& kind)
    : state_(std::make_unique<State>()) {
  translate_exceptions([&] {
    state_->folder = path_or_address;
    state_->kind = kind;
    const auto address = parse_store_address(path_or_address);
    if (!address) return;
    state_->stored = std::make_unique<StoredFolder>(*address);
    const auto& stored = *state_->stored;
    if (stored.is_published() && stored.manifest().kind != kind)
      bad_input("{}: what is there is of the kind '{}', not '{}'; choose another address",
                path_or_address, stored.manifest().kind, kind);
    state_->folder = scratch_folder_of_output(*address, make_unique_name());
    make_folders(state_->folder);
  });
}

StoredOutput::~StoredOutput() {
  std::error_code ignored;
  if (state_->stored) std::filesystem::remove_all(state_->folder, ignored);
}

const std::string& StoredOutput::folder() const {
  return state_->folder;
}

void StoredOutput::publish(bool quiet) {
  translate_exceptions([&] {
    if (state_->stored)
      state_->stored->publish(state_->folder, state_->kind, make_unique_name(), quiet);
  });
}

std::vector<StoredObject> find_garbage_objects(ObjectStore& store, double now, double older_than) {
  std::map<std::string, std::vector<StoredObject>> folders;
  for (const auto& object : store.list(""))
    if (const auto root = stored_folder_of(object.name)) folders[*root].push_back(object);
  // Read manifests after listing the objects: an object published meanwhile is not garbage.
  std::set<std::string> referenced;
  for (const auto& [root, objects] : folders)
    add_referenced_objects(store, root, objects, referenced);
  std::vector<StoredObject> garbage;
  for (const auto& [root, objects] : folders)
    for (const auto& object : objects)
      if (!referenced.contains(object.name) && now - object.modified >= older_than)
        garbage.push_back(object);
  return garbage;
}

std::vector<GarbageObject> find_garbage(const std::string& address, double older_than) {
  return translate_exceptions([&] {
    const auto store = open_store(require_store_address(address));
    const auto now = unix_seconds();
    std::vector<GarbageObject> found;
    for (const auto& object : find_garbage_objects(*store, now, older_than))
      found.push_back({store->object_address(object.name), object.bytes, now - object.modified});
    return found;
  });
}

void remove_garbage(const std::string& address, const std::vector<GarbageObject>& garbage) {
  translate_exceptions([&] {
    const auto store = open_store(require_store_address(address));
    const auto base = store->object_address("") + "/";
    std::vector<std::string> names;
    for (const auto& object : garbage) {
      if (!object.address.starts_with(base))
        bad_input("{}: is not below {}", object.address, address);
      names.push_back(object.address.substr(base.size()));
    }
    remove_objects(*store, names);
  });
}

}  // namespace qkscope
