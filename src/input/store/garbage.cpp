#include "input/store/garbage.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/core/text.h"
#include "base/io/json.h"
#include "input/store/lease.h"
#include "input/store/stored_folder.h"

namespace qkscope {
namespace {

using store_layout::kFiles;
using store_layout::kManifests;
using store_layout::kParts;
using store_layout::kRuns;

// Matches the names of unique_name(): "20261116T130501-9f3a01c2d4e5f607".
bool is_unique_name(const std::string& name) {
  constexpr std::string_view kShape = "ddddddddTdddddd-xxxxxxxxxxxxxxxx";
  if (name.size() != kShape.size()) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool digit = c >= '0' && c <= '9';
    const bool fits = kShape[i] == 'd'   ? digit
                      : kShape[i] == 'x' ? digit || (c >= 'a' && c <= 'f')
                                         : c == kShape[i];
    if (!fits) return false;
  }
  return true;
}

// Returns the stored folder ("" or "path/") that an object belongs to; nullopt for foreign objects.
std::optional<std::string> root_of(std::string name) {
  if (name.ends_with(kLeaseSuffix)) name.resize(name.size() - sizeof(kLeaseSuffix) + 1);
  const auto steps = split(name, '/');
  std::string root;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto& next = steps[i + 1];
    const bool last = i + 2 == steps.size();
    if (steps[i] == kManifests && last && number_of(next)) return root;
    if ((steps[i] == kFiles || steps[i] == kParts) && !last && is_unique_name(next)) return root;
    if (steps[i] == kParts && next == kRuns && i + 3 == steps.size() && number_of(steps[i + 2]))
      return root;
    root += steps[i] + "/";
  }
  return {};
}

// Collects the values of all "object" keys recursively.
void collect_objects(const Json& json, const std::string& root, std::set<std::string>& named) {
  if (json.is_object() && json.contains("object") && json["object"].is_string())
    named.insert(root + json["object"].get<std::string>());
  if (json.is_structured())
    for (const auto& inner : json) collect_objects(inner, root, named);
}

// One stored folder. Referenced objects of all folders go into one set, because the manifest of a
// sweep references files of the folders below it.
class Folder {
 public:
  Folder(ObjectStore& store, std::string root, std::set<std::string>& named)
      : store_(store), root_(std::move(root)), named_(named) {}

  void add(const StoredObject& object) { objects_.push_back(object); }
  const std::vector<StoredObject>& objects() const { return objects_; }

  // Reads manifests after the listing, so that objects published in between are not garbage.
  void name_needed() {
    const auto finished = keep_manifest();
    keep_run(finished);
  }

 private:
  Json keep_newest(const std::string& prefix) {
    const auto newest = newest_object(store_, root_ + prefix);
    if (!newest) return {};
    const auto name = numbered_name(root_ + prefix, newest->number);
    named_.insert(name);
    return parse_json(newest->content, store_.where(name));
  }

  // Returns the run that wrote the manifest.
  std::string keep_manifest() {
    const auto manifest = keep_newest(kManifests);
    collect_objects(manifest, root_, named_);
    return manifest.is_object() ? manifest.value("run", "") : "";
  }

  void keep_run(const std::string& finished) {
    const std::string prefix = std::string(kParts) + "/" + kRuns;
    const auto run = keep_newest(prefix);
    if (!run.is_object()) return;
    const auto name = run.value("run", "");
    const auto parts = root_ + kParts + "/" + name + "/";
    if (name.empty() || name == finished) {
      std::erase_if(named_, [&](const auto& each) { return each.starts_with(root_ + prefix); });
      return;
    }
    for (const auto& object : objects_) {
      if (!object.name.starts_with(parts) || !object.name.ends_with(".json")) continue;
      named_.insert(object.name);
      if (const auto text = store_.read(object.name))
        collect_objects(parse_json(*text, store_.where(object.name)), root_, named_);
    }
  }

  ObjectStore& store_;
  std::string root_;
  std::vector<StoredObject> objects_;
  std::set<std::string>& named_;
};

}  // namespace

std::vector<StoredObject> garbage_in(ObjectStore& store, double now, double older_than) {
  std::set<std::string> named;
  std::map<std::string, Folder> folders;
  for (const auto& object : store.list(""))
    if (const auto root = root_of(object.name))
      folders.try_emplace(*root, store, *root, named).first->second.add(object);
  for (auto& [root, folder] : folders) folder.name_needed();
  std::vector<StoredObject> garbage;
  for (const auto& [root, folder] : folders)
    for (const auto& object : folder.objects())
      if (!named.contains(object.name) && now - object.modified >= older_than)
        garbage.push_back(object);
  return garbage;
}

}  // namespace qkscope
