// Client of the Hub API (authentication, redirects, retries, error messages), listings of the files
// of a repository from the Hub or the cache, and downloads into the Hugging Face cache. fetch.cpp
// also implements the fetch functions of qkscope/hub.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/io/json_fwd.h"
#include "base/io/output_file.h"
#include "input/hub/http.h"
#include "qkscope/hub.h"

namespace qkscope {

struct HubSettings {
  Url endpoint;                 // HF_ENDPOINT, default https://huggingface.co
  std::string token;            // HF_TOKEN, else the file written by `hf auth login`; may be ""
  bool offline = false;         // HF_HUB_OFFLINE: send no requests
  int stall_seconds = 30;       // HF_HUB_DOWNLOAD_TIMEOUT: abort a connection without data
  int attempts = 5;             // per request, or per download without progress
  double first_wait = 0.5;      // seconds before the second attempt; doubles each time
  double longest_wait = 300.0;  // seconds; give up if the server asks for more
};

HubSettings hub_settings();

struct Repository : RepositoryName {
  std::string kind_name() const { return kind == RepositoryKind::model ? "model" : "dataset"; }
  std::string api_path() const { return "/api/" + kind_name() + "s/" + id; }
  std::string web_path() const {
    return kind == RepositoryKind::model ? "/" + id : "/datasets/" + id;
  }
};

class HubClient {
 public:
  explicit HubClient(HubSettings settings, const std::atomic<bool>* stop = nullptr)
      : settings_(std::move(settings)), stop_(stop) {}

  const HubSettings& settings() const { return settings_; }
  const std::atomic<bool>* stop_flag() const { return stop_; }
  Url make_url(const std::string& path) const;  // URL of a path below the endpoint

  // Sends a request without retries. Follows redirects within the endpoint, and a GET request whose
  // may_leave_endpoint is set to any https server, but sends the access token to the endpoint only.
  // Returns status 0 after a connection failure.
  HttpResponse send_once(HttpRequest request) const;

  // Sends a request and retries if is_retryable(). Throws if the connection keeps failing.
  HttpResponse send(const HttpRequest& request) const;

  // Sends a POST and parses the JSON response. Calls throw_response_error() for a failure status.
  Json post_json(const Repository& repository, const Url& url, const Json& body) const;

 private:
  HubSettings settings_;
  const std::atomic<bool>* stop_;
};

HttpRequest make_post_request(const Url& url, const Json& body);
Json parse_response(const HttpResponse& response, const Url& url);

// Call inside a catch block around code that parses a response. Turns parse errors into a failure
// error that names the URL, because the server is at fault; rethrows other failures unchanged.
[[noreturn]] void rethrow_response_error(const Url& url);

template <typename Body>
auto parse_with_url_in_errors(const Url& url, const Body& body) {
  try {
    return body();
  } catch (...) {
    rethrow_response_error(url);
  }
}

enum class RepositoryAccess { read, write };

// Throws an error that explains an unsuccessful response and suggests what to do.
[[noreturn]] void throw_response_error(const HubClient& client, const HttpResponse& response,
                                       const Repository& repository, RepositoryAccess access);

[[noreturn]] void throw_connection_error(const HttpResponse& response, const Url& url);

// True for transient connection failures and the status codes 408, 429, 500, 502, 503 and 504.
bool is_retryable(const HttpResponse& response);

// Parses a Retry-After header, which holds seconds or a date, and returns the seconds to wait.
// Returns nullopt if the header is empty or invalid. `now` is Unix time in seconds.
std::optional<double> parse_retry_after(const std::string& header, double now);

// Exponential backoff between attempts at one request or one download.
class Backoff {
 public:
  Backoff(const HubSettings& settings, const std::atomic<bool>* stop)
      : settings_(settings), stop_(stop) {}

  // Waits with exponential backoff or as Retry-After specifies. Returns false to give up.
  bool wait_before_retry(const HttpResponse& response);
  void reset_attempt_count() { attempts_ = 0; }

 private:
  const HubSettings& settings_;
  const std::atomic<bool>* stop_;
  int attempts_ = 0;
};

struct RemoteFile {
  std::string path;  // relative and validated: cannot escape a folder
  std::uint64_t size = 0;
  std::string git_sha1;
  std::string sha256 = {};    // for large files (LFS); else ""
  std::string xet_hash = {};  // only written to the cached file list, for huggingface_hub

  // Content hash used by the Hub; also the name of the blob in the cache.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

using RemoteTree = std::vector<RemoteFile>;  // sorted by path

const RemoteFile* find_remote_file(const RemoteTree& tree, const std::string& path);
std::vector<std::string> list_tree_paths(const RemoteTree& tree);

// Asks the Hub for the full commit hash of a branch, tag or commit. Throws a bad-input error that
// lists the branches if the revision does not exist.
std::string fetch_commit(const HubClient& client, const Repository& repository,
                         const std::string& revision);

RemoteTree fetch_tree(const HubClient& client, const Repository& repository,
                      const std::string& commit);

std::vector<std::string> fetch_branches(const HubClient& client, const Repository& repository);

// Reads the cached file list of a commit, trees/COMMIT.json, in the format of huggingface_hub.
// Returns nullopt if the file is missing or invalid.
std::optional<RemoteTree> read_cached_file_list(const std::string& repository_cache_folder,
                                                const std::string& commit);
void write_cached_file_list(const std::string& repository_cache_folder, const std::string& commit,
                            const RemoteTree& tree);

// Returns true if a path received from a server cannot lead outside the target folder.
bool is_safe_path(const std::string& path);

// Writes to one repository in the cache: blobs named by content hash, snapshots of symbolic links
// to blobs, and refs that name commits. Layout and locks are compatible with huggingface_hub.
class HubCacheWriter {
 public:
  explicit HubCacheWriter(const Repository& repository);

  const std::string& folder() const { return folder_; }
  std::string snapshot_folder(const std::string& commit) const {
    return folder_ + "/snapshots/" + commit;
  }
  std::string blob_path(const RemoteFile& file) const { return folder_ + "/blobs/" + file.etag(); }

  // Return true if the blob, or the file in the snapshot, exists and has the expected size.
  bool has_blob(const RemoteFile& file) const;
  bool has_file(const std::string& commit, const RemoteFile& file) const;

  // Locks a blob for writing; blocks while another process holds the lock.
  FileLock lock_blob(const RemoteFile& file) const;

  // Links a blob into a snapshot. Replaces a link whose target is missing or has the wrong size.
  void link_blob(const std::string& commit, const RemoteFile& file) const;
  void set_ref(const std::string& revision, const std::string& commit) const;

 private:
  std::string folder_;
  std::string locks_;
};

// Downloads the files that the cache lacks, in parallel and resuming partial files, verifies size
// and hash, and links all files into the commit's snapshot. Links are made in the given order, so
// that the last link implies that all others exist. Implemented in download.cpp.
void download_files(const HubClient& client, const Repository& repository,
                    const std::string& commit, const std::vector<RemoteFile>& files, bool quiet);

// Callback that reads a repository file; returns nullopt if it is neither cached nor downloadable.
using RemoteFileReader = std::function<std::optional<std::string>(const std::string& path)>;

// Callback that selects files to download. `paths` is the complete listing of the repository.
// Returns nullopt if a file that determines the selection could not be read.
using RemoteFileFilter = std::function<std::optional<std::vector<std::string>>(
    const std::vector<std::string>& paths, const RemoteFileReader& read, const std::string& where)>;

inline bool is_weight_file(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".bin");
}

void add_path_if_listed(const std::vector<std::string>& paths, const std::string& path,
                        std::vector<std::string>& chosen);

// Selects the dataset card and the files of a split. `name`: configuration, or "" for the default.
RemoteFileFilter make_dataset_filter(const std::string& name, const std::string& split);

struct RepositoryRevision {
  RepositoryName repository;
  std::string revision;  // branch, tag or commit; "" means main
  std::string commit;    // commit of the revision; "" to resolve it
};

// Downloads the missing files and returns the snapshot folder. Returns "" in offline mode if the
// revision is not cached.
std::string fetch_repository_snapshot(const RepositoryRevision& target,
                                      const RemoteFileFilter& choice, const FetchOptions& options);

// Returns all file paths in the commit of a cached snapshot, or nullopt if the cache has no listing
// of the commit. Older Hub clients do not store listings.
std::optional<std::vector<std::string>> list_snapshot_files(const RepositoryName& repository,
                                                            const std::string& snapshot);

// Fetches only the config.json of a checkpoint and returns its folder.
std::string fetch_config_folder(const std::string& name_or_folder, const std::string& revision,
                                const FetchOptions& options);

}  // namespace qkscope
