// Addresses: which server they name, and whether we may talk to it.
#pragma once

#include <string>
#include <string_view>

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

}  // namespace qkscope
