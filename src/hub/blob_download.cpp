#include "hub/blob_download.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "hub/backoff.h"
#include "io/folder.h"

namespace qkscope {
namespace {

constexpr int kMostSpoiled = 2;  // whole downloads whose sum was wrong

Digest new_digest(const RemoteFile& file) {
  return file.sha256.empty() ? git_digest(file.size) : Digest(Digest::Kind::sha256);
}

HttpResponse broken(const std::string& why) {
  HttpResponse response;
  response.fault = why;
  response.may_pass = true;
  return response;
}

}  // namespace

// BLOB.incomplete with the sum of what is in it.
class BlobDownload::Partial {
 public:
  Partial(const std::string& blob, const RemoteFile& file)
      : path_(blob + ".incomplete"), file_(file), digest_(new_digest(file)) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) system_error("write", path_, errno);
    read_what_is_there();
  }
  ~Partial() { ::close(descriptor_); }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  std::uint64_t size() const { return size_; }

  void append(std::span<const std::byte> bytes) {
    digest_.add(bytes);
    while (!bytes.empty()) {
      const auto count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) system_error("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      size_ += static_cast<std::uint64_t>(count);
    }
  }

  void start_again() {
    if (::ftruncate(descriptor_, 0) != 0) system_error("empty", path_, errno);
    ::lseek(descriptor_, 0, SEEK_SET);
    size_ = 0;
    digest_ = new_digest(file_);
  }

  bool sum_is_right() { return digest_.hex() == file_.etag(); }

  void become(const std::string& blob) {
    if (::fsync(descriptor_) != 0) system_error("sync", path_, errno);
    if (std::rename(path_.c_str(), blob.c_str()) != 0) system_error("rename to", blob, errno);
  }

 private:
  void read_what_is_there() {
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    while (true) {
      const auto count = ::read(descriptor_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) system_error("read", path_, errno);
      if (count == 0) break;
      digest_.add(std::span(buffer).first(static_cast<std::size_t>(count)));
      size_ += static_cast<std::uint64_t>(count);
    }
    if (size_ > file_.size) start_again();
  }

  std::string path_;
  const RemoteFile& file_;
  Digest digest_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

BlobDownload::BlobDownload(const HubClient& client, const Repository& repository, const Url& url,
                           const RemoteFile& file, std::function<void(std::uint64_t)> progress)
    : client_(client),
      repository_(repository),
      url_(url),
      file_(file),
      cache_(repository),
      progress_(std::move(progress)) {}

void BlobDownload::run() {
  make_folders(cache_.folder() + "/blobs");
  const auto lock = cache_.lock(file_);
  if (!cache_.has_blob(file_)) {  // else another process was faster
    Partial partial(cache_.blob(file_), file_);
    continue_partial(partial);
    for (int spoiled = 1; !partial.sum_is_right(); ++spoiled) {
      partial.start_again();
      if (spoiled == kMostSpoiled)
        failure("{}: the downloaded content does not have the {} that the Hub announced, {}",
                url_.without_query(), file_.sha256.empty() ? "git SHA-1" : "SHA-256", file_.etag());
      log::warn("{}: what came is not what the Hub announced; downloading it again", file_.path);
      continue_partial(partial);
    }
    partial.become(cache_.blob(file_));
  }
  progress_(file_.size);
}

void BlobDownload::continue_partial(Partial& partial) {
  Backoff backoff(client_.settings(), client_.stop());
  progress_(partial.size());
  while (partial.size() < file_.size) {
    const auto before = partial.size();
    auto response = fetch_rest(partial);
    if (partial.size() == file_.size) return;
    if (partial.size() > before) backoff.made_headway();
    if (response.status == 416) {  // the server does not know such a place in the file
      partial.start_again();
      response = broken("the server cannot continue the file");
    } else if (response.ok()) {
      response =
          broken(fmt::format("the file ended after {} of {} bytes", partial.size(), file_.size));
    }
    if (backoff.wait_after(response)) continue;
    if (client_.stop() != nullptr && client_.stop()->load()) failure("the download was stopped");
    if (response.status == 0) connection_failed(response, url_);
    explain_refusal(client_, response, repository_, Access::read);
  }
}

HttpResponse BlobDownload::fetch_rest(Partial& partial) {
  HttpRequest request{.url = url_};
  if (partial.size() > 0)
    request.headers.emplace_back("Range", fmt::format("bytes={}-", partial.size()));
  bool begun = false;
  request.sink = [&](const HttpResponse& head, std::span<const std::byte> bytes) {
    if (!std::exchange(begun, true) && head.status == 200 && partial.size() > 0)
      partial.start_again();  // the server sends the file from its beginning
    if (partial.size() + bytes.size() > file_.size)
      failure("{}: the server sends more than the {} bytes it announced", url_.without_query(),
              file_.size);
    partial.append(bytes);
    progress_(partial.size());
  };
  return client_.send_once(std::move(request));
}

}  // namespace qkscope
