#include "captures/data_root.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "captures/metadata.h"
#include "core/error.h"
#include "io/folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownDifferences = 5;

[[noreturn]] void refuse(const std::string& root, const Json& there, const Json& now) {
  auto differences = config_differences(there, now);
  if (differences.size() > kShownDifferences) {
    const auto more = differences.size() - kShownDifferences;
    differences.resize(kShownDifferences);
    differences.push_back(fmt::format("and {} more", more));
  }
  bad_input(
      "{}: holds a capture with another configuration ({}); choose another output.data_root, "
      "or start again with --overwrite",
      root, fmt::join(differences, "; "));
}

// Of all but the lock, which this process may hold.
void empty_folder(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != layout::kLockFile) fs::remove_all(entry.path());
}

FileLock lock_folder(const std::string& folder, FileLock::Mode mode, const std::string& root) {
  FileLock lock(folder + "/" + layout::kLockFile, mode, FileLock::Wait::no);
  if (!lock.held())
    bad_input("{}: another capture is running into this folder; wait until it ends", root);
  return lock;
}

std::vector<fs::path> head_folders(const std::string& root) {
  std::vector<fs::path> folders;
  if (!fs::is_directory(root)) return folders;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_directory() && parse_folder_name(entry.path().filename().string()))
      folders.push_back(entry.path());
  return folders;
}

// An identity is the effective configuration and more: device, commits.
bool has_configuration(const Json& identity, const Json& effective) {
  if (!identity.is_object()) return false;
  for (const auto& [key, value] : effective.items())
    if (identity.value(key, Json()) != value) return false;
  return true;
}

}  // namespace

std::string DataRoot::part(const Shard& shard) const {
  return parts() + "/" + part_name(shard);
}

std::vector<FileLock> DataRoot::lock(const Shard& shard) const {
  if (fs::exists(path_) && !fs::is_directory(path_))
    bad_input("{}: output.data_root is a file, expected a folder", path_);
  make_folders(parts());
  std::vector<FileLock> locks;
  if (shard.count == 1) {
    locks.push_back(lock_whole());
  } else {
    locks.push_back(lock_folder(parts(), FileLock::Mode::shared, path_));
    make_folders(part(shard));
    locks.push_back(lock_folder(part(shard), FileLock::Mode::exclusive, path_));
  }
  make_folders(part(shard));
  return locks;
}

FileLock DataRoot::lock_whole() const {
  return lock_folder(parts(), FileLock::Mode::exclusive, path_);
}

bool DataRoot::finished() const {
  return fs::exists(state_file());
}

bool DataRoot::holds(const Json& effective) const {
  if (!finished()) return false;
  const Json state = load_json(state_file());
  return state.is_object() &&
         has_configuration(state.value(metadata::kStateConfiguration, Json()), effective);
}

bool DataRoot::continues(const Json& effective) const {
  const auto parts = shards();
  return !finished() && !parts.empty() &&
         has_configuration(Journal(part(parts.front())).manifest().identity, effective);
}

void DataRoot::check_finished(const Json& identity) const {
  const Json state = load_json(state_file());
  if (!state.is_object() || !state.contains(metadata::kStateConfiguration))
    bad_input(
        "{}: holds a capture that another program made; choose another output.data_root, or "
        "replace it with --overwrite",
        path_);
  const auto& there = state[metadata::kStateConfiguration];
  if (there != identity) refuse(path_, there, identity);
}

void DataRoot::check_parts(const Json& identity, const Shard& shard) const {
  const auto there = shards();
  for (const auto& other : there) {
    if (other.count != shard.count)
      bad_input(
          "{}: holds a run in {} shard{}, not in {}; continue that one, or start again with "
          "--overwrite",
          path_, other.count, other.count == 1 ? "" : "s", shard.count);
    const Journal journal(part(other));
    if (journal.manifest().identity != identity)
      refuse(path_, journal.manifest().identity, identity);
  }
  if (there.empty() && !head_folders(path_).empty())
    bad_input(
        "{}: holds head files of another capture; choose another output.data_root, or replace "
        "them with --overwrite",
        path_);
}

std::vector<Shard> DataRoot::shards() const {
  std::vector<Shard> found;
  if (!fs::is_directory(parts())) return found;
  for (const auto& entry : fs::directory_iterator(parts()))
    if (const auto shard = parse_part_name(entry.path().filename().string());
        shard && Journal::exists(entry.path().string()))
      found.push_back(*shard);
  std::sort(found.begin(), found.end(),
            [](const Shard& a, const Shard& b) { return a.index < b.index; });
  return found;
}

void DataRoot::remove_capture(const Json& identity, const Shard& shard) const {
  fs::remove(state_file());  // first: what is left does not look whole
  for (const auto& folder : head_folders(path_)) {
    fs::remove(folder / layout::kHeadFile);
    if (fs::is_empty(folder)) fs::remove(folder);
  }
  fs::remove(path_ + "/" + layout::kExamplesFile);
  fs::remove(path_ + "/" + layout::kCardFile);
  for (const auto& other : shards()) {
    const bool own = other.count == shard.count && other.index == shard.index;
    if (!own && shard.count == other.count && Journal(part(other)).manifest().identity == identity)
      continue;  // a shard of this very run
    if (own || other.count == 1) {
      empty_folder(part(other));
      continue;
    }
    const auto lock = lock_folder(part(other), FileLock::Mode::exclusive, path_);
    fs::remove_all(part(other));
  }
}

void DataRoot::remove_parts() const {
  fs::remove_all(parts());
}

void DataRoot::remove_left_parts() const {
  if (!finished() || !fs::exists(parts())) return;
  const auto lock = lock_whole();
  remove_parts();
}

}  // namespace qkscope
