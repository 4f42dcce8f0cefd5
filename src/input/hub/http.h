// HTTP requests, URLs, the content hashes used by the Hub, and parallel transfers of many files
// with a single progress line.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkscope/experimental/log.h"

struct evp_md_ctx_st;  // EVP_MD_CTX of OpenSSL

namespace qkscope {

struct Url {
  std::string scheme;  // "https" or "http"
  std::string host;    // lower case; IPv6 addresses keep their brackets
  int port = 0;        // default port of the scheme if not given
  std::string target;  // path and query, starting with '/'

  std::string host_and_port() const;  // without the default port
  std::string to_string() const;
  // Returns the URL for error messages, without the query, which may contain a signature.
  std::string without_query() const;
};

// Throws a bad-input error for anything but an http(s) URL without user name and password.
Url parse_url(const std::string& text);

// Resolves a Location header, which may be relative to `base`.
Url resolve_url(const Url& base, const std::string& location);

inline bool is_same_server(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}
bool is_loopback(const Url& url);

// Throws a bad-input error for plain http, which could be intercepted, except on loopback.
void refuse_plain_http(const Url& url, const std::string& what);

// Escapes text for a URL: "a b/c" → "a%20b%2Fc". Characters in `keep` stay ("/" for paths).
std::string percent_encode(std::string_view text, std::string_view keep = "");

double unix_seconds();

// A byte range of a file, sent as the request body.
struct FileSlice {
  std::string path;  // "" for none
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct HttpResponse {
  int status = 0;                                   // 0: the connection failed, see `fault`
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};                            // only if no sink consumed the body
  std::string fault = {};                           // reason of a connection failure
  bool too_slow = false;   // the transfer was aborted because its speed was below the minimum
  bool transient = false;  // the fault may disappear on retry

  // Parses a header line "Name: value"; ignores other lines.
  void add_header(std::string_view line);
  bool ok() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const;  // "" if absent
};

struct HttpRequest {
  std::string method = "GET";
  Url url = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};  // for POST, and for PUT without an upload
  FileSlice upload = {};  // body of a PUT
  // Receives the body of a 200 or 206 response in pieces; `head` holds the status and the headers.
  // An exception thrown by the callback aborts the request and propagates to the caller.
  std::function<void(const HttpResponse& head, std::span<const std::byte> bytes)> sink = {};
  std::function<void(std::uint64_t bytes)> sent = {};  // body bytes sent so far
  const std::atomic<bool>* stop = nullptr;             // set to true to abort the request
  int stall_seconds = 30;
  bool may_leave_endpoint = false;  // follow redirects to other servers, as for files
};

// Paths of CA certificate bundles in Linux distributions.
inline constexpr std::array kCertificatePaths = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, Red Hat
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/ssl/cert.pem"};                                 // Alpine

// Returns the file of CA certificates: SSL_CERT_FILE if set, else the first readable one of
// `curl_default` (libcurl's own path, may be "") and the paths of Linux distributions, because a
// bundled libcurl may have been built for another distribution. Returns "" if there is none.
std::string find_ca_bundle(const std::string& curl_default);

// Sends one request without redirects or retries. Implemented in network.cpp; network_absent.cpp
// throws instead in builds without libcurl or OpenSSL.
HttpResponse perform_http_request(const HttpRequest& request);

class Digest {
 public:
  enum class HashAlgorithm { sha1, sha256 };

  explicit Digest(HashAlgorithm kind);

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  std::string finalize_hex();  // call once

 private:
  struct HashContextDeleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, HashContextDeleter> context_;
};

// Starts the git blob hash of a file: SHA-1 over "blob SIZE\0" followed by the content.
Digest start_git_blob_digest(std::uint64_t size);

std::string sha256_hex(std::string_view text);
std::string to_hex(std::span<const unsigned char> bytes);

std::string sha256_of_file(const std::string& path);
std::string git_sha1_of_file(const std::string& path);

class TransferProgress {
 public:
  TransferProgress(const std::string& what, const std::vector<std::uint64_t>& sizes, bool quiet);

  // Reports that `bytes` bytes of a file are complete. Thread-safe. The first report for a file
  // must give the number of bytes transferred by an earlier run.
  void update(std::size_t file, std::uint64_t bytes);

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> done_;
  std::chrono::steady_clock::time_point start_;
  std::uint64_t before_ = 0;  // bytes complete before this run
  std::vector<bool> begun_;
  Progress progress_;
};

// Runs task(0) to task(count - 1) on a few dedicated threads, because tasks wait for the network,
// not for the CPU. After the first exception no new task starts, `failed` becomes true, and the
// exception is rethrown at the end.
using TransferTask = std::function<void(std::size_t index, const std::atomic<bool>& failed)>;
void run_transfers(std::size_t count, const TransferTask& task);

}  // namespace qkscope
