#include "input/store/stored_input.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "input/hub/transfer.h"
#include "input/store/object_store.h"
#include "input/store/scratch_folders.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostObjects = 100'000;

bool is_weights(const std::string& name) {
  constexpr const char* kExtensions[] = {".safetensors", ".bin", ".gguf", ".pt", ".pth"};
  return std::ranges::any_of(kExtensions, [&](const char* end) { return name.ends_with(end); });
}

// Size and modification time, which identify a version of an object.
Json description(const StoredObject& object) {
  return {{"bytes", object.bytes}, {"modified", object.modified}};
}

// Downloads objects into a folder and records their versions next to it.
void fetch_objects(ObjectStore& store, const std::vector<StoredObject>& objects,
                   const std::string& folder, const FetchOptions& options) {
  const auto listing_file = folder + ".json";
  make_folders(folder);
  Json listing = path_exists(listing_file) ? load_json(listing_file) : Json::object();
  std::vector<const StoredObject*> missing;
  std::vector<std::uint64_t> sizes;
  for (const auto& object : objects) {
    if (!options.weights && is_weights(object.name)) continue;
    const bool same = listing.value(object.name, Json()) == description(object);
    if (same && path_exists(folder + "/" + object.name)) continue;
    missing.push_back(&object);
    sizes.push_back(object.bytes);
  }
  if (missing.empty()) return;
  TransferMeter meter("download", sizes, options.quiet);
  run_transfers(missing.size(), [&](std::size_t i, const std::atomic<bool>&) {
    const auto& object = *missing[i];
    const auto path = folder + "/" + object.name;
    make_folders(parent_folder(path));
    meter.update(i, 0);
    store.get(object.name, path, {});
    if (fs::file_size(path) != object.bytes)
      failure("{}: {} bytes came, expected {}; run the same command again",
              store.where(object.name), fs::file_size(path), object.bytes);
    meter.update(i, object.bytes);
  });
  for (const auto* object : missing) listing[object->name] = description(*object);
  write_file(listing_file, listing.dump(1) + "\n");
}

std::string fetch_at(const StoreAddress& address, const FetchOptions& options) {
  const auto place = fetched_scratch_folder(address) + "/input";
  const auto store = open_store(address);
  const auto objects = store->list("");
  if (objects.size() > kMostObjects)
    bad_input("{}: has {} objects; expected those of a checkpoint or a dataset",
              address.to_string(), objects.size());
  if (!objects.empty()) {
    const auto folder = place + "/" + address.last_name();
    fetch_objects(*store, objects, folder, options);
    return folder;
  }
  auto parent = address;
  parent.path.resize(address.path.rfind('/') == std::string::npos ? 0 : address.path.rfind('/'));
  const auto parent_store = open_store(parent);
  const auto object = parent_store->find(address.last_name());
  if (!object) bad_input("{}: nothing is there", address.to_string());
  fetch_objects(*parent_store, {*object}, place, options);
  return place + "/" + object->name;
}

}  // namespace

std::string local_input(const std::string& path_or_address, const FetchOptions& options) {
  const auto address = parse_store_address(path_or_address);
  if (!address) return path_or_address;
  if (address->scheme == StoreAddress::Scheme::file) return address->arrow_path();
  static std::mutex mutex;
  static std::map<std::string, std::string> fetched;
  const std::lock_guard lock(mutex);
  const auto key = address->to_string() + (options.weights ? "" : " without weights");
  auto found = fetched.find(key);
  if (found == fetched.end()) found = fetched.emplace(key, fetch_at(*address, options)).first;
  return found->second;
}

}  // namespace qkscope
