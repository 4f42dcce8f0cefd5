#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "input/hub/client.h"
#include "input/hub/http.h"

namespace qkscope {
namespace {

constexpr int kMaxWrongHashes = 2;  // complete downloads with a wrong hash before giving up

Digest make_blob_digest(const RemoteFile& file) {
  return file.sha256.empty() ? start_git_blob_digest(file.size)
                             : Digest(Digest::HashAlgorithm::sha256);
}

// A partial download, BLOB.incomplete, with the running hash of its content.
class PartialDownload {
 public:
  PartialDownload(const std::string& blob, const RemoteFile& file)
      : path_(blob + ".incomplete"), file_(file), digest_(make_blob_digest(file)) {
    descriptor_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!descriptor_.is_open()) throw_system_error("write", path_, errno);
    const MappedFile existing(path_);
    digest_.update(existing.bytes());
    size_ = existing.bytes().size();
    ::lseek(descriptor_.fd(), 0, SEEK_END);
    if (size_ > file_.size) restart();
  }

  std::uint64_t size() const { return size_; }

  void append(std::span<const std::byte> bytes) {
    digest_.update(bytes);
    write_all(descriptor_, bytes, path_);
    size_ += bytes.size();
  }

  void restart() {
    if (::ftruncate(descriptor_.fd(), 0) != 0) throw_system_error("empty", path_, errno);
    ::lseek(descriptor_.fd(), 0, SEEK_SET);
    size_ = 0;
    digest_ = make_blob_digest(file_);
  }

  bool has_expected_hash() { return digest_.finalize_hex() == file_.etag(); }

  void move_to(const std::string& blob) { rename_durably(path_, blob); }

 private:
  std::string path_;
  const RemoteFile& file_;
  Digest digest_;
  FileDescriptor descriptor_;
  std::uint64_t size_ = 0;
};

// Downloads one blob, reconnecting if necessary.
struct BlobDownload {
  const HubClient& client;
  const Repository& repository;
  Url url;
  const RemoteFile& file;
  // Called with the number of bytes downloaded by this and earlier runs. May throw to cancel.
  std::function<void(std::uint64_t)> progress;

  // Returns when the blob is in place; throws if the download fails permanently.
  void run() const {
    const HubCacheWriter cache(repository);
    make_folders(cache.folder() + "/blobs");
    const auto lock = cache.lock_blob(file);
    if (!cache.has_blob(file)) {  // else another process has downloaded the blob
      PartialDownload partial(cache.blob_path(file), file);
      resume_download(partial);
      for (int wrong = 1; !partial.has_expected_hash(); ++wrong) {
        partial.restart();
        if (wrong == kMaxWrongHashes)
          throw_failure(
              "{}: the downloaded content does not have the {} that the Hub announced, {}",
              url.without_query(), file.sha256.empty() ? "git SHA-1" : "SHA-256", file.etag());
        log::warn("{}: what came is not what the Hub announced; downloading it again", file.path);
        resume_download(partial);
      }
      partial.move_to(cache.blob_path(file));
    }
    progress(file.size);
  }

  void resume_download(PartialDownload& partial) const {
    Backoff backoff(client.settings(), client.stop_flag());
    progress(partial.size());
    while (partial.size() < file.size) {
      const auto before = partial.size();
      auto response = request_remaining_bytes(partial);
      if (partial.size() == file.size) return;
      if (partial.size() > before && !response.too_slow) backoff.reset_attempt_count();
      if (response.status == 416) {  // the server rejects the range
        partial.restart();
        response = {.fault = "the server cannot continue the file", .transient = true};
      } else if (response.ok()) {
        response = {
            .fault = fmt::format("the file ended after {} of {} bytes", partial.size(), file.size),
            .transient = true};
      }
      if (backoff.wait_before_retry(response)) continue;
      if (client.stop_flag() != nullptr && client.stop_flag()->load())
        throw_failure("the download was stopped");
      if (response.status == 0) throw_connection_error(response, url);
      throw_response_error(client, response, repository, RepositoryAccess::read);
    }
  }

  HttpResponse request_remaining_bytes(PartialDownload& partial) const {
    HttpRequest request{.url = url, .may_leave_endpoint = true};
    if (partial.size() > 0)
      request.headers.emplace_back("Range", fmt::format("bytes={}-", partial.size()));
    bool begun = false;
    request.sink = [&](const HttpResponse& head, std::span<const std::byte> bytes) {
      if (!std::exchange(begun, true) && head.status == 200 && partial.size() > 0)
        partial.restart();  // the server ignored the range and restarts
      if (partial.size() + bytes.size() > file.size)
        throw_failure("{}: the server sends more than the {} bytes it announced",
                      url.without_query(), file.size);
      partial.append(bytes);
      progress(partial.size());
    };
    return client.send_once(std::move(request));
  }
};

// Returns the blobs that the cache lacks, each blob once even if several files share it.
std::vector<RemoteFile> missing_blobs(const HubCacheWriter& cache, const std::string& commit,
                                      const std::vector<RemoteFile>& files) {
  std::vector<RemoteFile> missing;
  std::set<std::string> seen;
  for (const auto& file : files)
    if (!cache.has_file(commit, file) && !cache.has_blob(file) && seen.insert(file.etag()).second)
      missing.push_back(file);
  return missing;
}

void check_free_disk_space(const HubCacheWriter& cache, const std::vector<RemoteFile>& files) {
  std::uint64_t needed = 0;
  for (const auto& file : files) {
    std::error_code none;
    const auto there = std::filesystem::file_size(cache.blob_path(file) + ".incomplete", none);
    needed += file.size - (none ? 0 : std::min<std::uint64_t>(there, file.size));
  }
  std::error_code error;
  const auto space = std::filesystem::space(cache.folder(), error);
  if (!error && space.available < needed)
    throw_failure(
        "{}: {} are to be downloaded, but the disk has only {} left; free some, or set "
        "HF_HUB_CACHE to a folder on a larger disk ('qkscope hub cache' shows what is there)",
        cache.folder(), format_bytes(needed), format_bytes(space.available));
}

constexpr std::size_t kParallelTransfers = 8;
constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

std::uint64_t total_bytes(const std::vector<std::uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

std::int64_t mebibytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>((bytes + kMebibyte - 1) / kMebibyte);
}

}  // namespace

TransferProgress::TransferProgress(const std::string& what, const std::vector<std::uint64_t>& sizes,
                                   bool quiet)
    : sizes_(sizes),
      done_(sizes.size()),
      start_(std::chrono::steady_clock::now()),
      begun_(sizes.size()),
      progress_(
          {.what = what, .unit = "MiB", .total = mebibytes(total_bytes(sizes)), .quiet = quiet}) {}

void TransferProgress::update(std::size_t file, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!begun_[file]) before_ += bytes;
  begun_[file] = true;
  done_[file] = bytes;
  std::size_t whole = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) whole += done_[i] == sizes_[i] ? 1 : 0;
  const auto all = total_bytes(done_);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const auto fresh = static_cast<double>(all - std::min(all, before_));
  progress_.update(mebibytes(all), fmt::format("{} of {} files, {}/s", whole, sizes_.size(),
                                               format_bytes(static_cast<std::uint64_t>(
                                                   fresh / std::max(elapsed.count(), 1e-3)))));
}

void run_transfers(std::size_t count, const TransferTask& task) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        task(i, failed);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < std::min(count, kParallelTransfers)) threads.emplace_back(work);
    } catch (const std::system_error& refused) {
      log::debug("transfers: only {} threads could be started: {}", threads.size(), refused.what());
    }
    work();
  }
  if (error) std::rethrow_exception(error);
}

void download_files(const HubClient& client, const Repository& repository,
                    const std::string& commit, const std::vector<RemoteFile>& files, bool quiet) {
  const HubCacheWriter cache(repository);
  make_folders(cache.folder());
  auto missing = missing_blobs(cache, commit, files);
  if (!missing.empty()) {
    check_free_disk_space(cache, missing);
    // Start with the largest files, so that no large file is downloaded alone at the end.
    std::ranges::stable_sort(missing, std::greater<>(), &RemoteFile::size);
    TransferProgress meter("download " + repository.id, to_vector(missing, &RemoteFile::size),
                           quiet);
    run_transfers(missing.size(), [&](std::size_t i, const std::atomic<bool>& failed) {
      const auto progress = [&](std::uint64_t bytes) {
        if (failed) throw_failure("stopped after another file failed");
        meter.update(i, bytes);
      };
      const auto url = client.make_url(fmt::format("{}/resolve/{}/{}", repository.web_path(),
                                                   commit, percent_encode(missing[i].path, "/")));
      BlobDownload{client, repository, url, missing[i], progress}.run();
    });
  }
  for (const auto& file : files) cache.link_blob(commit, file);
}

}  // namespace qkscope
