#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include <unistd.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/client.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

std::uint64_t file_size_or_zero(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

std::vector<fs::path> list_files_and_links_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    if (at->is_symlink() || !at->is_directory()) files.push_back(at->path());
  return files;
}

std::vector<std::string> list_cached_commits(const fs::path& repository) {
  const auto snapshots = (repository / "snapshots").string();
  return is_folder(snapshots) ? entry_names(snapshots) : std::vector<std::string>();
}

// Returns the blob that a snapshot file links to, or "" if the file is not a link.
std::string linked_blob_name(const fs::path& file) {
  std::error_code error;
  const auto target = fs::read_symlink(file, error);
  return error ? "" : target.filename().string();
}

CachedEntry make_cached_entry(const RepositoryName& name, const fs::path& folder) {
  CachedEntry entry{.repository = name, .folder = folder.string(), .revisions = {}};
  for (const auto& blob : list_files_and_links_below(folder / "blobs")) {
    entry.bytes += file_size_or_zero(blob);
    if (blob.extension() == ".incomplete") entry.incomplete_bytes += file_size_or_zero(blob);
  }
  const auto refs = cached_refs(folder.string());
  for (const auto& commit : list_cached_commits(folder)) {
    CachedRevision revision{.commit = commit, .refs = {}};
    for (const auto& file : list_files_and_links_below(folder / "snapshots" / commit)) {
      revision.bytes += file_size_or_zero(file);
      ++revision.files;
      if (!fs::is_symlink(file)) entry.bytes += file_size_or_zero(file);
    }
    for (const auto& [ref, target] : refs)
      if (target == commit) revision.refs.push_back(ref);
    entry.revisions.push_back(std::move(revision));
  }
  return entry;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_system_error("remove", path.string(), error.value());
}

std::uint64_t remove_file(const fs::path& path) {
  const auto bytes = fs::is_symlink(path) ? 0 : file_size_or_zero(path);
  remove_tree(path);
  return bytes;
}

// Removes the files of a snapshot for which `selects` returns true, and their blobs unless another
// snapshot shares them. Removes links first, so that a snapshot never has a dangling link.
std::uint64_t remove_snapshot_files(const fs::path& repository, const std::string& commit,
                                    bool (*selects)(const std::string& path)) {
  std::set<std::string> kept;  // blobs of other snapshots
  for (const auto& other : list_cached_commits(repository))
    if (other != commit)
      for (const auto& file : list_files_and_links_below(repository / "snapshots" / other))
        kept.insert(linked_blob_name(file));
  std::uint64_t bytes = 0;
  for (const auto& file : list_files_and_links_below(repository / "snapshots" / commit)) {
    if (!selects(file.string())) continue;
    const auto blob = linked_blob_name(file);
    bytes += remove_file(file);
    if (!blob.empty() && !kept.contains(blob)) bytes += remove_file(repository / "blobs" / blob);
  }
  return bytes;
}

fs::path require_cached_folder(const RepositoryName& repository) {
  auto folder = repository_cache_folder(repository.kind, repository.id);
  if (!is_repository_id(repository.id) || !is_folder(folder))
    reject("{}: no such {} in the cache {}; 'qkscope hub cache' lists what is there",
           quote_text(repository.id),
           repository.kind == RepositoryKind::model ? "model" : "dataset", hub_cache_folder());
  return folder;
}

bool is_file_of_size(const std::string& path, std::uint64_t size) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == size && !error;
}

}  // namespace

HubCacheWriter::HubCacheWriter(const Repository& repository)
    : folder_(repository_cache_folder(repository.kind, repository.id)) {
  const fs::path path = folder_;
  locks_ = (path.parent_path() / ".locks" / path.filename()).string();
}

bool HubCacheWriter::has_blob(const RemoteFile& file) const {
  return is_file_of_size(blob_path(file), file.size);
}

bool HubCacheWriter::has_file(const std::string& commit, const RemoteFile& file) const {
  return is_file_of_size(snapshot_folder(commit) + "/" + file.path, file.size);
}

FileLock HubCacheWriter::lock_blob(const RemoteFile& file) const {
  make_folders(locks_);
  return {locks_ + "/" + file.etag() + ".lock", FileLock::LockMode::exclusive,
          FileLock::Blocking::yes};
}

void HubCacheWriter::link_blob(const std::string& commit, const RemoteFile& file) const {
  const fs::path path = fs::path(snapshot_folder(commit)) / file.path;
  if (has_file(commit, file)) return;
  make_folders(path.parent_path().string());
  const auto target = fs::path(blob_path(file)).lexically_relative(path.parent_path());
  const auto temporary = temporary_path(path.string());
  ::unlink(temporary.c_str());  // left by a killed process with the same pid
  if (::symlink(target.c_str(), temporary.c_str()) != 0)
    throw_system_error("make a link", temporary, errno);
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    throw_system_error("rename to", path.string(), errno);
}

void HubCacheWriter::set_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path path = fs::path(folder_) / "refs" / revision;
  if (path_exists(path.string()) && MappedFile(path.string()).text() == commit) return;
  make_folders(path.parent_path().string());
  write_file(path.string(), commit);
}

CacheListing list_cache() {
  return translate_exceptions([&] {
    CacheListing listing{.folder = hub_cache_folder(), .entries = {}};
    const fs::path cache = listing.folder;
    if (!is_folder(listing.folder)) return listing;
    for (const auto& name : entry_names(listing.folder))
      if (const auto repository = parse_cache_folder_name(name);
          repository && is_folder(cache / name))
        listing.entries.push_back(make_cached_entry(*repository, cache / name));
    return listing;
  });
}

std::uint64_t remove_repository(const RepositoryName& repository) {
  return translate_exceptions([&] {
    const auto folder = require_cached_folder(repository);
    const auto bytes = make_cached_entry(repository, folder).bytes;
    remove_tree(folder / "refs");  // refs first, so that a partial removal does not look complete
    remove_tree(folder);
    remove_tree(folder.parent_path() / ".locks" / folder.filename());
    return bytes;
  });
}

std::uint64_t remove_revision(const RepositoryName& repository, const std::string& revision) {
  return translate_exceptions([&] {
    const auto folder = require_cached_folder(repository);
    const auto commit =
        is_valid_revision(revision) ? cached_commit(repository.kind, repository.id, revision) : "";
    if (commit.empty())
      reject("{}: no revision {} in the cache; 'qkscope hub cache' lists what is there",
             repository.id, quote_text(revision));
    for (const auto& [name, target] : cached_refs(folder.string()))
      if (target == commit) remove_file(folder / "refs" / name);
    remove_file(folder / "trees" / (commit + ".json"));
    const auto bytes = remove_snapshot_files(folder, commit, [](const auto&) { return true; });
    remove_tree(folder / "snapshots" / commit);
    return bytes;
  });
}

std::uint64_t evict_weights(const std::string& name_or_folder, const std::string& revision) {
  return translate_exceptions([&] {
    if (path_exists(name_or_folder) || !is_repository_id(name_or_folder)) return std::uint64_t{0};
    const fs::path folder = repository_cache_folder(RepositoryKind::model, name_or_folder);
    const auto commit =
        cached_commit(RepositoryKind::model, name_or_folder, revision.empty() ? "main" : revision);
    return commit.empty() ? 0 : remove_snapshot_files(folder, commit, is_weight_file);
  });
}

}  // namespace qkscope
