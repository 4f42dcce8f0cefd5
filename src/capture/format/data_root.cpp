#include "capture/format/data_root.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "capture/format/metadata.h"
#include "input/hub/client.h"

namespace qkscope {
namespace {

// A starting shard reads and compares the manifests of at most this many other shards.
constexpr std::size_t kComparedParts = 8;

constexpr char kOtherCapture[] =
    "{root}: holds a capture that this run cannot continue: {difference}; choose another "
    "output.data_root, or start again with --overwrite";

// Throws a bad-input error with a message template of RunKind, after filling in its placeholders.
[[noreturn]] void refuse_other_run(const char* message, const DataRoot& root,
                                   const std::string& difference) {
  reject("{}", fmt::format(fmt::runtime(message), fmt::arg("root", root.path()),
                           fmt::arg("state_file", root.state_file()),
                           fmt::arg("difference", difference)));
}

std::vector<std::string> head_folders(const FolderHandle& root) {
  std::vector<std::string> folders;
  for (const auto& name : root.entry_names())
    if (parse_head_folder_name(name) && root.has_folder(name)) folders.push_back(name);
  return folders;
}

// Whether the part (folder of one shard's segments) belongs to the run with this manifest; false
// for a damaged part. Rethrows I/O errors, because the part may be intact.
bool part_belongs_to_run(const std::string& part, const Manifest& manifest) {
  const auto path = part + "/" + layout::kManifestFile;
  return value_or_on_bad_input(
      [&] { return describe_manifest_difference(load_manifest(path), manifest).empty(); }, false);
}

// Empties a part except for its lock. Removes the manifest first: without it the part is ignored.
void clear_part(const FolderHandle& part) {
  part.remove_file(layout::kManifestFile);
  part.sync();
  for (const auto& name : part.entry_names())
    if (name != layout::kLockFile) part.remove_tree(name);
}

void check_not_link(const FolderHandle& folder, const std::string& name) {
  if (folder.has_link(name))
    reject("{}/{}: is a link; links inside a capture are not followed: remove it", folder.path(),
           name);
}

constexpr const char* kCaptureFiles[] = {layout::kExamplesFile, layout::kCardFile};

}  // namespace

const RunKind kCaptureRun = {
    .name = "capture",
    .noun = "a capture",
    .command = "capture",
    .unit = "examples",
    .state_file = layout::kStateFile,
    .files = kCaptureFiles,
    .folders = {},
    .no_configuration =
        "{root}: holds a capture that another program made; choose another "
        "output.data_root, or replace it with --overwrite",
    .other_run = kOtherCapture,
};

void throw_missing_shards(const std::string& where, std::vector<std::string> missing) {
  constexpr std::size_t kShown = 12;
  if (missing.size() > kShown) {
    const auto more = missing.size() - kShown;
    missing.resize(kShown);
    missing.push_back(fmt::format("and {} more", more));
  }
  reject("{}: shards are missing: {}; run them with --shard first", where,
         fmt::join(missing, ", "));
}

bool identity_matches_config(const Json& identity, const Json& effective) {
  if (!identity.is_object()) return false;
  for (const auto& [key, value] : effective.items())
    if (identity.value(key, Json()) != value) return false;
  return true;
}

DataRoot::DataRoot(std::string path, const RunKind& kind) : path_(std::move(path)), kind_(&kind) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
}

void DataRoot::check_no_symbolic_links(const std::optional<Shard>& own) const {
  const FolderHandle root(path_);
  for (const auto* name : {layout::kPartsFolder, kind_->state_file}) check_not_link(root, name);
  for (const auto& names : {kind_->files, kind_->folders})
    for (const auto* name : names) check_not_link(root, name);
  for (const auto& name : root.entry_names()) {
    if (!parse_head_folder_name(name)) continue;
    check_not_link(root, name);
    if (root.has_folder(name)) check_not_link(root.open_subfolder(name), layout::kHeadFile);
  }
  if (!root.has_folder(layout::kPartsFolder)) return;
  const auto parts = root.open_subfolder(layout::kPartsFolder);
  for (const auto& name : parts.entry_names()) {
    const auto shard = parse_part_name(name);
    if (shard && own && *shard != *own) continue;
    check_not_link(parts, name);
    if (!shard || !parts.has_folder(name)) continue;
    const auto part = parts.open_subfolder(name);
    for (const auto& file : part.entry_names()) check_not_link(part, file);
  }
}

FileLock DataRoot::lock_folder(const std::string& folder, FileLock::LockMode mode) const {
  FileLock lock(folder + "/" + layout::kLockFile, mode, FileLock::Blocking::no);
  if (!lock.is_held())
    reject("{}: another capture is running into this folder; wait until it ends", path_);
  return lock;
}

DataRootLock DataRoot::lock(const Shard& shard) const {
  if (path_exists(path_) && !is_folder(path_))
    reject("{}: output.data_root is a file, expected a folder", path_);
  DataRootLock lock;
  lock.made = make_folders(path_);
  check_no_symbolic_links(shard);
  if (shard.count == 1) {
    lock.files.push_back(lock_folder(parts_folder(), FileLock::LockMode::exclusive));
  } else {
    lock.files.push_back(lock_folder(parts_folder(), FileLock::LockMode::shared));
    lock.files.push_back(lock_folder(part_folder(shard), FileLock::LockMode::exclusive));
  }
  make_folders(part_folder(shard));
  check_no_symbolic_links(shard);  // again: a link may have appeared before the lock was held
  return lock;
}

DataRootLock DataRoot::lock_whole_root() const {
  DataRootLock lock;
  check_no_symbolic_links();
  lock.files.push_back(lock_folder(parts_folder(), FileLock::LockMode::exclusive));
  check_no_symbolic_links();
  return lock;
}

bool DataRoot::is_finished_with_config(const Json& effective) const {
  if (!is_finished()) return false;
  const Json state = load_json(state_file());
  return state.is_object() &&
         identity_matches_config(state.value(metadata::kStateConfiguration, Json()), effective);
}

bool DataRoot::can_be_resumed_by(const Manifest& manifest) const {
  if (is_finished()) return false;
  for (const auto& shard : list_started_shards())
    if (Journal::has_entries(part_folder(shard)))
      return part_belongs_to_run(part_folder(shard), manifest);
  return false;
}

void DataRoot::check_identity_of_finished_run(const Json& identity) const {
  const Json state = load_json(state_file());
  const bool known =
      state.is_object() && state.value(metadata::kStateConfiguration, Json()).is_object();
  const auto difference =
      known ? describe_identity_difference(state[metadata::kStateConfiguration], identity) : "";
  if (known && difference.empty()) return;
  refuse_other_run(known ? kind_->other_run : kind_->no_configuration, *this, difference);
}

std::vector<Shard> DataRoot::list_part_shards() const {
  std::vector<Shard> found;
  if (!is_folder(parts_folder())) return found;
  for (const auto& name : entry_names(parts_folder()))
    if (const auto shard = parse_part_name(name)) found.push_back(*shard);
  std::ranges::sort(found, [](const Shard& a, const Shard& b) { return a.index < b.index; });
  return found;
}

std::vector<Shard> DataRoot::list_started_shards() const {
  auto found = list_part_shards();
  std::erase_if(found, [&](const Shard& shard) { return !Journal::exists(part_folder(shard)); });
  return found;
}

Journal DataRoot::open_part(const Manifest& manifest, const Shard& shard) const {
  const auto folder = part_folder(shard);
  if (Journal::exists(folder) && Journal::has_entries(folder)) {
    const auto before = Journal(folder).manifest();
    const auto difference = describe_manifest_difference(before, manifest);
    if (!difference.empty()) refuse_other_run(kOtherCapture, *this, difference);
    auto now = before;  // the user may publish to another repository than before
    now.repo = manifest.repo;
    now.branch = manifest.branch;
    now.private_repo = manifest.private_repo;
    if (to_json(now) != to_json(before)) Journal::create(folder, now);
  } else {
    clear_part(FolderHandle(parts_folder()).open_subfolder(part_name(shard)));
    Journal::create(folder, manifest);
  }
  // Check other parts last: if two runs start at once, at least one then sees the other's part.
  check_other_parts_match(manifest, shard);
  return Journal(folder);
}

void DataRoot::check_other_parts_match(const Manifest& manifest, const Shard& shard) const {
  const FolderHandle parts(parts_folder());
  std::size_t others = 0;
  for (const auto& other : list_part_shards()) {
    if (other == shard) continue;
    if (others >= kComparedParts && other.count == shard.count) continue;
    if (!Journal::exists(part_folder(other))) continue;
    check_not_link(parts, part_name(other));
    ++others;
    const auto folder = part_folder(other);
    const bool same_count = other.count == shard.count;
    if (same_count && part_belongs_to_run(folder, manifest)) continue;
    if (!Journal::has_entries(folder)) {  // an empty part is removed unless a process has locked it
      const FileLock lock(folder + "/" + layout::kLockFile, FileLock::LockMode::exclusive,
                          FileLock::Blocking::no);
      if (lock.is_held() && !Journal::has_entries(folder)) {
        remove_part(parts, other);
        continue;
      }
    }
    if (!same_count)
      reject(
          "{}: holds a run in {} shard{}, not in {}; continue that one, or start again with "
          "--overwrite",
          path_, other.count, other.count == 1 ? "" : "s", shard.count);
    refuse_other_run(kOtherCapture, *this,
                     describe_manifest_difference(Journal(folder).manifest(), manifest));
  }
}

// Removes the lock file last, so that no other process can lock the part while it still has files.
void DataRoot::remove_part(const FolderHandle& parts, const Shard& shard) const {
  {
    const auto part = parts.open_subfolder(part_name(shard));
    clear_part(part);
    part.remove_file(layout::kLockFile);
  }
  parts.remove_empty_folder(part_name(shard));
}

void DataRoot::remove_unused_part(const Shard& shard, const DataRootLock& lock) const {
  if (Journal::has_entries(part_folder(shard))) return;
  {
    const FolderHandle root(path_);
    const auto parts = root.open_subfolder(layout::kPartsFolder);
    remove_part(parts, shard);
    const bool alone = shard.count == 1 || lock.files.front().try_upgrade_to_exclusive();
    if (!alone || !list_started_shards().empty()) return;
  }
  // Keep the parts folder: it proves to the next run that qkscope wrote the remaining files.
  if (is_being_replaced() && !existing_run_files().empty()) return;
  remove_parts();
  if (lock.made.empty()) return;
  // Remove empty folders, from the data root up to the outermost folder that lock() created.
  for (auto folder = path_;; folder = parent_folder(folder)) {
    const auto name = std::filesystem::path(folder).filename().string();
    if (!FolderHandle(parent_folder(folder)).remove_empty_folder(name) || folder == lock.made)
      return;
  }
}

std::vector<std::string> DataRoot::existing_run_files() const {
  const FolderHandle root(path_);
  auto names = head_folders(root);
  for (const auto& list : {kind_->files, kind_->folders})
    std::ranges::copy_if(list, std::back_inserter(names),
                         [&](auto* name) { return root.has_entry(name); });
  return names;
}

void DataRoot::check_no_foreign_files() const {
  if (is_finished() || is_being_replaced()) return;
  for (const auto& shard : list_started_shards())
    if (Journal::has_entries(part_folder(shard))) return;
  const auto names = existing_run_files();
  if (names.empty()) return;
  reject(
      "{}: holds {} that qkscope did not write ({}); choose another output.data_root, or move "
      "them away",
      path_, names.size() == 1 ? "a file" : "files", format_name_list(names));
}

void DataRoot::remove_finished_files() const {
  const FolderHandle root(path_);
  for (const auto& name : head_folders(root)) {
    root.open_subfolder(name).remove_file(layout::kHeadFile);
    root.remove_empty_folder(name);
  }
  for (const auto* name : kind_->files) root.remove_file(name);
  for (const auto* name : kind_->folders) root.remove_tree(name);
}

void DataRoot::remove_run_files(const Manifest& manifest, const Shard& shard) const {
  const FolderHandle root(path_);
  const auto parts = root.open_subfolder(layout::kPartsFolder);
  // A state file in the parts folder proves to the next run that qkscope wrote all remaining files.
  // The state file stays until the parts are removed.
  if (root.has_entry(kind_->state_file))
    write_file(parts_folder() + "/" + kind_->state_file, "{}\n");
  root.remove_file(kind_->state_file);  // first: makes the folder unfinished
  root.sync();
  remove_finished_files();
  for (const auto& other : list_started_shards()) {
    if (other == shard) {
      clear_part(parts.open_subfolder(part_name(other)));
      continue;
    }
    if (other.count == shard.count && part_belongs_to_run(part_folder(other), manifest))
      continue;  // another shard of the same run
    const auto lock = lock_folder(part_folder(other), FileLock::LockMode::exclusive);
    remove_part(parts, other);
  }
}

void DataRoot::make_final_folder() const {
  FolderHandle(parts_folder()).remove_tree(layout::kFinalFolder);
  make_folders(final_folder());
}

void DataRoot::move_final_files_to_root() const {
  const FolderHandle root(path_);
  const auto from = root.open_subfolder(layout::kPartsFolder).open_subfolder(layout::kFinalFolder);
  for (const auto* name : kind_->folders) root.remove_tree(name);
  const auto names = from.entry_names();
  parallel_for(static_cast<std::int64_t>(names.size()), [&](std::int64_t i) {
    const auto& name = names[static_cast<std::size_t>(i)];
    if (name == kind_->state_file) return;
    if (!parse_head_folder_name(name)) return from.move_file(name, root);
    const auto head = root.make_folder(name);
    from.open_subfolder(name).move_file(layout::kHeadFile, head);
    head.sync();
  });
  root.sync();
  from.move_file(kind_->state_file, root);
  root.sync();
  remove_parts();
}

void DataRoot::remove_parts() const {
  const FolderHandle root(path_);
  if (!root.has_entry(layout::kPartsFolder)) return;
  {
    const auto parts = root.open_subfolder(layout::kPartsFolder);
    for (const auto& name : parts.entry_names())
      if (name != layout::kLockFile) parts.remove_tree(name);
    parts.remove_file(layout::kLockFile);
  }
  root.remove_empty_folder(layout::kPartsFolder);  // fails if the next run has locked it
}

void DataRoot::remove_leftover_parts() const {
  if (!is_finished() || !path_exists(parts_folder())) return;
  const auto lock = lock_whole_root();
  remove_parts();
}

}  // namespace qkscope
