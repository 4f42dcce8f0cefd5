#include "hub/download.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "hub/blob_download.h"
#include "hub/transfer.h"
#include "io/folder.h"

namespace qkscope {
namespace {

Url address_of(const HubClient& client, const Repository& repository, const std::string& commit,
               const RemoteFile& file) {
  return client.at(fmt::format("{}/resolve/{}/{}", repository.page_path(), commit,
                               percent_encode(file.path, "/")));
}

// Each content once, however many files have it.
std::vector<RemoteFile> missing_blobs(const CacheWriter& cache, const std::string& commit,
                                      const std::vector<RemoteFile>& files) {
  std::vector<RemoteFile> missing;
  std::set<std::string> seen;
  for (const auto& file : files)
    if (!cache.has_file(commit, file) && !cache.has_blob(file) && seen.insert(file.etag()).second)
      missing.push_back(file);
  return missing;
}

void check_space(const CacheWriter& cache, const std::vector<RemoteFile>& files) {
  std::uint64_t needed = 0;
  for (const auto& file : files) {
    std::error_code none;
    const auto there = std::filesystem::file_size(cache.blob(file) + ".incomplete", none);
    needed += file.size - (none ? 0 : std::min<std::uint64_t>(there, file.size));
  }
  std::error_code error;
  const auto space = std::filesystem::space(cache.folder(), error);
  if (!error && space.available < needed)
    failure(
        "{}: {} are to be downloaded, but the disk has only {} left; free some, or set "
        "HF_HUB_CACHE "
        "to a folder on a larger disk ('qkscope cache' shows what is there)",
        cache.folder(), format_bytes(needed), format_bytes(space.available));
}

// A large file last would run alone in the end.
void largest_first(std::vector<RemoteFile>& files) {
  std::stable_sort(files.begin(), files.end(),
                   [](const RemoteFile& a, const RemoteFile& b) { return a.size > b.size; });
}

}  // namespace

void download_files(const HubClient& client, const Repository& repository,
                    const std::string& commit, const std::vector<RemoteFile>& files, bool quiet) {
  const CacheWriter cache(repository);
  make_folders(cache.folder());
  auto missing = missing_blobs(cache, commit, files);
  if (!missing.empty()) {
    check_space(cache, missing);
    largest_first(missing);
    std::vector<std::uint64_t> sizes;
    for (const auto& file : missing) sizes.push_back(file.size);
    TransferMeter meter("download " + repository.id, sizes, quiet);
    run_transfers(missing.size(), [&](std::size_t i, const std::atomic<bool>& failed) {
      const auto progress = [&](std::uint64_t bytes) {
        if (failed) failure("stopped after another file failed");
        meter.update(i, bytes);
      };
      const auto url = address_of(client, repository, commit, missing[i]);
      BlobDownload(client, repository, url, missing[i], progress).run();
    });
  }
  for (const auto& file : files) cache.link(commit, file);
}

}  // namespace qkscope
