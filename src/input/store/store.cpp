// Implements qkscope/experimental/store.h.
#include "qkscope/experimental/store.h"

#include <filesystem>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "input/hub/http.h"
#include "input/store/scratch_folders.h"
#include "input/store/stored_folder.h"
#include "input/store/stored_input.h"

namespace qkscope {
namespace {

StoreAddress address_of(const std::string& text) {
  const auto address = parse_store_address(text);
  if (!address)
    bad_input(
        "{}: not an address of an object store; expected s3://bucket/path, gs://bucket/path "
        "or file:///path",
        text);
  return *address;
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
  return translate_exceptions([&] { return fetch_folder(path_or_address, quiet); });
}

std::string fetch_input(const std::string& path_or_address, const FetchOptions& options) {
  return translate_exceptions([&] { return local_input(path_or_address, options); });
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
    if (stored.there() && stored.manifest().kind != kind)
      bad_input("{}: what is there is of the kind '{}', not '{}'; choose another address",
                path_or_address, stored.manifest().kind, kind);
    state_->folder = output_scratch_folder(*address, unique_name());
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
    if (state_->stored) state_->stored->publish(state_->folder, state_->kind, unique_name(), quiet);
  });
}

std::vector<GarbageObject> find_garbage(const std::string& address, double older_than) {
  return translate_exceptions([&] {
    const auto store = open_store(address_of(address));
    const auto now = unix_seconds();
    std::vector<GarbageObject> found;
    for (const auto& object : find_garbage_objects(*store, now, older_than))
      found.push_back({store->where(object.name), object.bytes, now - object.modified});
    return found;
  });
}

void remove_garbage(const std::string& address, const std::vector<GarbageObject>& garbage) {
  translate_exceptions([&] {
    const auto store = open_store(address_of(address));
    const auto base = store->where("") + "/";
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
