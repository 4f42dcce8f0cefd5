// One exchange with a server. No redirect is followed here and nothing is tried twice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hub/url.h"

namespace qkscope {

// A stretch of a file to send as the body.
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
  bool may_pass = false;                       // the fault may be gone the next time

  bool ok() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const;  // "" where there is none
};

struct HttpRequest {
  std::string method = "GET";
  Url url = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};  // sent by POST
  FileSlice upload = {};  // sent by PUT
  // Takes the body of a 200 or 206 as it comes; `head` has status and headers. An exception ends
  // the exchange and passes through.
  std::function<void(const HttpResponse& head, std::span<const std::byte> bytes)> sink = {};
  std::function<void(std::uint64_t bytes)> sent = {};  // of the body, so far
  const std::atomic<bool>* stop = nullptr;             // cuts the exchange when it becomes true
  int stall_seconds = 30;
};

HttpResponse exchange(const HttpRequest& request);

}  // namespace qkscope
