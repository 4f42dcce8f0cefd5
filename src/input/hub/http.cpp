#include "input/hub/http.h"

#include <algorithm>
#include <cctype>

#include <unistd.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/hub_cache.h"

namespace qkscope {
namespace {

int default_port(const std::string& scheme) {
  return scheme == "https" ? 443 : 80;
}

// Removes the user name, password and query, which may be secret, from a URL shown in a message.
std::string redact_url(const std::string& text) {
  const auto scheme = text.find("://");
  const auto begin = scheme == std::string::npos ? 0 : scheme + 3;
  const auto at = text.rfind('@');
  const auto host = at == std::string::npos || at < begin ? begin : at + 1;
  const auto shown = (host > begin ? text.substr(0, begin) + "***@" : text.substr(0, begin)) +
                     text.substr(host, text.find_first_of("?#", host) - host);
  return quote_text(shown);
}

[[noreturn]] void throw_bad_url(const std::string& text) {
  const bool names_user = text.find('@') != std::string::npos;
  reject("{}: not an address of the kind https://host/path{}", redact_url(text),
         names_user ? "; user names and passwords are not taken from addresses" : "");
}

// Parses "host", "host:8080" or "[::1]:8080".
void parse_host_and_port(const std::string& server, const std::string& text, Url& url) {
  if (server.find('@') != std::string::npos) throw_bad_url(text);
  const auto bracket = server.rfind(']');
  const auto colon = server.find(':', bracket == std::string::npos ? 0 : bracket);
  url.host = ascii_lower(server.substr(0, colon));
  url.port = default_port(url.scheme);
  if (colon != std::string::npos) {
    const auto port = parse_integer(server.substr(colon + 1), "the port in " + redact_url(text));
    if (port < 1 || port > 65535) throw_bad_url(text);
    url.port = static_cast<int>(port);
  }
  if (url.host.empty() || url.host.find_first_of("\\ ") != std::string::npos) throw_bad_url(text);
}

}  // namespace

std::string Url::host_and_port() const {
  return port == default_port(scheme) ? host : fmt::format("{}:{}", host, port);
}

std::string Url::without_query() const {
  return fmt::format("{}://{}{}", scheme, host_and_port(), target.substr(0, target.find('?')));
}

std::string Url::to_string() const {
  const auto query = target.find('?');
  return without_query() + (query == std::string::npos ? "" : target.substr(query));
}

Url parse_url(const std::string& text) {
  const bool plain =
      std::ranges::none_of(text, [](unsigned char c) { return c <= ' ' || c == 0x7f; });
  const auto colon = text.find("://");
  if (!plain || colon == std::string::npos) throw_bad_url(text);
  Url url;
  url.scheme = ascii_lower(text.substr(0, colon));
  if (url.scheme != "https" && url.scheme != "http") throw_bad_url(text);
  const auto begin = colon + 3;
  const auto end = std::min(text.find_first_of("/?#", begin), text.size());
  parse_host_and_port(text.substr(begin, end - begin), text, url);
  url.target = text.substr(end, text.find('#', end) - end);
  if (!url.target.starts_with('/')) url.target.insert(0, "/");
  return url;
}

Url resolve_url(const Url& base, const std::string& location) {
  if (location.starts_with("//")) return parse_url(base.scheme + ":" + location);
  if (location.find("://") < location.find_first_of("/?#")) return parse_url(location);
  auto prefix = base;
  prefix.target = base.target.substr(0, base.target.find('?'));
  prefix.target.resize(location.starts_with('/') ? 0 : prefix.target.rfind('/') + 1);
  if (prefix.target.empty()) prefix.target = "/";
  const auto tail = location.starts_with('/') ? location.substr(1) : location;
  return parse_url(prefix.without_query() + tail);
}

bool is_loopback(const Url& url) {
  if (url.host == "localhost" || url.host == "[::1]") return true;
  return url.host.starts_with("127.") &&
         url.host.find_first_not_of("0123456789.") == std::string::npos;
}

void refuse_plain_http(const Url& url, const std::string& what) {
  if (url.scheme == "http" && !is_loopback(url))
    reject("{}: {} is not encrypted; expected an https address (http is for this machine only)",
           what, url.without_query());
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const bool plain = code < 0x80 && (std::isalnum(code) != 0 || c == '-' || c == '_' ||
                                       c == '.' || c == '~' || keep.find(c) != keep.npos);
    result += plain ? std::string(1, c) : fmt::format("%{:02X}", code);
  }
  return result;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void HttpResponse::add_header(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return;
  headers[ascii_lower(line.substr(0, colon))] = trim_white_space(line.substr(colon + 1));
}

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string find_ca_bundle(const std::string& curl_default) {
  if (auto chosen = environment_variable("SSL_CERT_FILE"); !chosen.empty()) return chosen;
  const auto readable = [](const std::string& file) { return ::access(file.c_str(), R_OK) == 0; };
  if (!curl_default.empty() && readable(curl_default)) return curl_default;
  for (const char* path : kCertificatePaths)
    if (readable(path)) return path;
  return {};
}

std::string sha256_hex(std::string_view text) {
  Digest digest(Digest::HashAlgorithm::sha256);
  digest.update(text);
  return digest.finalize_hex();
}

Digest start_git_blob_digest(std::uint64_t size) {
  Digest digest(Digest::HashAlgorithm::sha1);
  const auto head = fmt::format("blob {}", size);
  digest.update(std::string_view(head.c_str(), head.size() + 1));
  return digest;
}

std::string sha256_of_file(const std::string& path) {
  return sha256_hex(MappedFile(path).text());
}

std::string git_sha1_of_file(const std::string& path) {
  const MappedFile file(path);
  auto digest = start_git_blob_digest(file.bytes().size());
  digest.update(file.bytes());
  return digest.finalize_hex();
}

}  // namespace qkscope
