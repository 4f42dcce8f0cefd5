// HTTP: addresses, whether we may talk to the server they name, and one exchange with it.
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
  std::string host;    // lower case; an IPv6 address keeps its brackets
  int port = 0;        // the scheme's own where the address has none
  std::string target;  // path and query, from its '/' on

  std::string to_string() const;
  // For messages: no query, which may hold a signature.
  std::string without_query() const;
};

// Bad input where it is no http(s) address; names and passwords in it are refused.
Url parse_url(const std::string& text);

// A Location header, which may leave out scheme and host.
Url resolve_url(const Url& base, const std::string& location);

bool same_server(const Url& a, const Url& b);  // scheme, host and port
bool is_loopback(const Url& url);

// Plain http is for this machine only: anything else could be read and changed on the way.
void refuse_plain_http(const Url& url, const std::string& what);

// "stage1 step/x" → "stage1%20step%2Fx"; `keep` are characters that stay ("/" for paths).
std::string percent_encode(std::string_view text, std::string_view keep = "");

// The part of a file that is sent as the body.
struct FileSlice {
  std::string path;  // "" for none
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct HttpResponse {
  int status = 0;                              // 0: the connection failed, see fault
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // what was not given to the sink
  std::string fault;                           // why the connection failed
  bool transient = false;                      // the fault may be gone at the next attempt

  // Takes one line "Name: value" of the head; other lines are passed by.
  void add_header(std::string_view line);
  bool ok() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const;  // "" where there is none
};

struct HttpRequest {
  std::string method = "GET";
  Url url = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};  // sent by POST, and by PUT where no file is
  FileSlice upload = {};  // sent by PUT
  // Takes the body of a 200 or 206 as it comes; `head` has status and headers. An exception ends
  // the exchange and passes through.
  std::function<void(const HttpResponse& head, std::span<const std::byte> bytes)> sink = {};
  std::function<void(std::uint64_t bytes)> sent = {};  // of the body, so far
  const std::atomic<bool>* stop = nullptr;             // cuts the exchange when it becomes true
  int stall_seconds = 30;
  bool may_leave = false;  // redirects to other servers are followed, as a file's are
};

// No redirect is followed here and nothing is tried twice. In http_curl.cpp; a build without
// libcurl has network_absent.cpp, whose exchange throws.
HttpResponse exchange(const HttpRequest& request);

}  // namespace qkscope
