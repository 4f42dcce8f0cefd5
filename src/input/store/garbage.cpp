#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/core/text.h"
#include "base/io/json.h"
#include "input/store/stored_folder.h"

namespace qkscope {
namespace {

using store_layout::kFiles, store_layout::kManifests, store_layout::kParts, store_layout::kRuns;

// Matches the names of unique_name(): "20261116T130501-9f3a01c2d4e5f607".
bool is_unique_name(const std::string& name) {
  constexpr const char* kDecimal = "0123456789";
  return name.size() == 32 && name[8] == 'T' && name[15] == '-' &&
         name.find_first_not_of(kDecimal) == 8 && name.find_first_not_of(kDecimal, 9) == 15 &&
         name.find_first_not_of("0123456789abcdef", 16) == std::string::npos;
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
void collect_objects(const Json& json, const std::string& root, std::set<std::string>& referenced) {
  if (json.is_object() && json.contains("object") && json["object"].is_string())
    referenced.insert(root + json["object"].get<std::string>());
  if (json.is_structured())
    for (const auto& inner : json) collect_objects(inner, root, referenced);
}

// Collects the objects that a stored folder still needs. Referenced objects of all folders go into
// one set, because the manifest of a sweep references files of the folders below it.
class ReferenceCollector {
 public:
  ReferenceCollector(ObjectStore& store, std::set<std::string>& referenced)
      : store_(store), referenced_(referenced) {}

  void add_folder(const std::string& root, const std::vector<StoredObject>& objects) {
    const auto manifest = add_newest(root + kManifests);
    collect_objects(manifest, root, referenced_);
    const auto finished_run = manifest.is_object() ? manifest.value("run", "") : "";
    add_run(root, objects, finished_run);
  }

 private:
  // Returns the content of the newest numbered object.
  Json add_newest(const std::string& prefix) {
    const auto newest = newest_object(store_, prefix);
    if (!newest) return {};
    const auto name = numbered_name(prefix, newest->number);
    referenced_.insert(name);
    return parse_json(newest->content, store_.where(name));
  }

  void add_run(const std::string& root, const std::vector<StoredObject>& objects,
               const std::string& finished_run) {
    const auto prefix = root + kParts + "/" + kRuns;
    const auto run = add_newest(prefix);
    if (!run.is_object()) return;
    const auto name = run.value("run", "");
    if (name.empty() || name == finished_run) {
      std::erase_if(referenced_, [&](const auto& each) { return each.starts_with(prefix); });
      return;
    }
    const auto parts = root + kParts + "/" + name + "/";
    for (const auto& object : objects) {
      if (!object.name.starts_with(parts) || !object.name.ends_with(".json")) continue;
      referenced_.insert(object.name);
      if (const auto text = store_.read(object.name))
        collect_objects(parse_json(*text, store_.where(object.name)), root, referenced_);
    }
  }

  ObjectStore& store_;
  std::set<std::string>& referenced_;
};

}  // namespace

std::vector<StoredObject> find_garbage_objects(ObjectStore& store, double now, double older_than) {
  std::map<std::string, std::vector<StoredObject>> folders;
  for (const auto& object : store.list(""))
    if (const auto root = root_of(object.name)) folders[*root].push_back(object);
  // Manifests are read after the listing, so that objects published in between are not garbage.
  std::set<std::string> referenced;
  ReferenceCollector collector(store, referenced);
  for (const auto& [root, objects] : folders) collector.add_folder(root, objects);
  std::vector<StoredObject> garbage;
  for (const auto& [root, objects] : folders)
    for (const auto& object : objects)
      if (!referenced.contains(object.name) && now - object.modified >= older_than)
        garbage.push_back(object);
  return garbage;
}

}  // namespace qkscope
