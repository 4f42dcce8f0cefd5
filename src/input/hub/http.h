// HTTP: URLs and a single request-response exchange.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qkscope {

struct Url {
  std::string scheme;  // "https" or "http"
  std::string host;    // lower case; IPv6 addresses keep their brackets
  int port = 0;        // default port of the scheme if not given
  std::string target;  // path and query, starting with '/'

  std::string server() const;  // host, and the port unless it is the default one
  std::string to_string() const;
  // For error messages: omits the query, which may contain a signature.
  std::string without_query() const;
};

// Throws bad input for anything but an http(s) URL, or if it contains a user name or password.
Url parse_url(const std::string& text);

// Resolves a Location header, which may be relative to `base`.
Url resolve_url(const Url& base, const std::string& location);

inline bool same_server(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}
bool is_loopback(const Url& url);

// Throws bad input for plain http to a remote host, which could be intercepted. Loopback is
// allowed.
void refuse_plain_http(const Url& url, const std::string& what);

// "stage1 step/x" → "stage1%20step%2Fx". Characters in `keep` stay unescaped ("/" for paths).
std::string percent_encode(std::string_view text, std::string_view keep = "");

// Returns the current Unix time in seconds.
double unix_seconds();

// Removes white space at both ends.
std::string trimmed(std::string_view text);

// A byte range of a file, sent as the request body.
struct FileSlice {
  std::string path;  // "" for none
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct HttpResponse {
  int status = 0;                              // 0: the connection failed, see `fault`
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // only if no sink consumed the body
  std::string fault;                           // reason of a connection failure
  bool transient = false;                      // the fault may disappear on retry

  // Parses one header line "Name: value"; other lines are ignored.
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
  // Receives the body of a 200 or 206 response in pieces; `head` has status and headers. An
  // exception aborts the exchange and propagates.
  std::function<void(const HttpResponse& head, std::span<const std::byte> bytes)> sink = {};
  std::function<void(std::uint64_t bytes)> sent = {};  // body bytes sent so far
  const std::atomic<bool>* stop = nullptr;             // set to true to abort the exchange
  int stall_seconds = 30;
  bool may_leave = false;  // may follow redirects to other servers, as for files
};

// Returns the file of CA certificates: SSL_CERT_FILE if set, else the first readable one of
// `curl_default` (libcurl's own path, may be "") and the paths of Linux distributions, because a
// bundled libcurl may have been built for another distribution. Returns "" if there is none.
std::string certificates_file(const std::string& curl_default);
// Paths of CA certificates in Linux distributions.
const std::vector<std::string>& certificate_paths();

// Performs one exchange without redirects or retries. Implemented in http_curl.cpp;
// network_absent.cpp throws instead in builds without libcurl.
HttpResponse exchange(const HttpRequest& request);

}  // namespace qkscope
