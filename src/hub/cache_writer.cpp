#include "hub/cache_writer.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "checkpoint/hub_cache.h"
#include "core/error.h"
#include "io/folder.h"
#include "io/mapped_file.h"
#include "io/output_file.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

bool holds(const std::string& path, std::uint64_t size) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == size && !error;
}

}  // namespace

CacheWriter::CacheWriter(const Repository& repository)
    : folder_(cached_repository(repository.kind, repository.id)) {
  const fs::path path = folder_;
  locks_ = (path.parent_path() / ".locks" / path.filename()).string();
}

std::string CacheWriter::snapshot(const std::string& commit) const {
  return folder_ + "/snapshots/" + commit;
}

std::string CacheWriter::blob(const RemoteFile& file) const {
  return folder_ + "/blobs/" + file.etag();
}

bool CacheWriter::has_blob(const RemoteFile& file) const {
  return holds(blob(file), file.size);
}

bool CacheWriter::has_file(const std::string& commit, const RemoteFile& file) const {
  return holds(snapshot(commit) + "/" + file.path, file.size);
}

FileLock CacheWriter::lock(const RemoteFile& file) const {
  make_folders(locks_);
  return {locks_ + "/" + file.etag() + ".lock", FileLock::Mode::exclusive, FileLock::Wait::yes};
}

void CacheWriter::link(const std::string& commit, const RemoteFile& file) const {
  const fs::path path = fs::path(snapshot(commit)) / file.path;
  if (has_file(commit, file)) return;
  make_folders(path.parent_path().string());
  const auto target = fs::path(blob(file)).lexically_relative(path.parent_path());
  const auto temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0)
    system_error("make a link", temporary, errno);
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    system_error("rename to", path.string(), errno);
}

void CacheWriter::set_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path path = fs::path(folder_) / "refs" / revision;
  if (path_exists(path.string()) && MappedFile(path.string()).text() == commit) return;
  make_folders(path.parent_path().string());
  write_file(path.string(), commit);
}

}  // namespace qkscope
