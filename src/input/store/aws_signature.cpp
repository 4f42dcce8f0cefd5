#include "input/store/aws_signature.h"

#include <ctime>
#include <map>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/core/text.h"
#include "input/hub/digest.h"

namespace qkscope {
namespace {

std::string sha256_hex(std::string_view text) {
  Digest digest(Digest::Kind::sha256);
  digest.add(text);
  return digest.hex();
}

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// RFC 2104. Keys here are shorter than a block.
std::string hmac_sha256(std::string key, std::string_view message) {
  constexpr std::size_t kBlock = 64;
  if (key.size() > kBlock) key = bytes_of_hex(sha256_hex(key));
  key.resize(kBlock, '\0');
  auto inner = key;
  auto outer = key;
  for (auto& byte : inner) byte = static_cast<char>(byte ^ 0x36);
  for (auto& byte : outer) byte = static_cast<char>(byte ^ 0x5c);
  return bytes_of_hex(sha256_hex(outer + bytes_of_hex(sha256_hex(inner + std::string(message)))));
}

std::string hex_of_bytes(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

std::string lower_case(std::string text) {
  for (auto& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string host_of(const Url& url) {
  const bool usual = url.port == (url.scheme == "https" ? 443 : 80);
  return usual ? url.host : fmt::format("{}:{}", url.host, url.port);
}

}  // namespace

void sign_request(HttpRequest& request, const std::string& region,
                  const AwsCredentials& credentials, double now) {
  const auto time = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(static_cast<std::time_t>(now)));
  const auto content = sha256_hex(request.body);
  request.headers.emplace_back("x-amz-date", time);
  request.headers.emplace_back("x-amz-content-sha256", content);
  if (!credentials.session_token.empty())
    request.headers.emplace_back("x-amz-security-token", credentials.session_token);

  std::map<std::string, std::string> sorted = {{"host", host_of(request.url)}};
  for (const auto& [name, value] : request.headers) sorted[lower_case(name)] = value;
  std::string headers;
  std::string names;
  for (const auto& [name, value] : sorted) {
    headers += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const auto& target = request.url.target;
  const auto question = target.find('?');
  const auto query = question == std::string::npos ? "" : target.substr(question + 1);
  const auto canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method,
                                     target.substr(0, question), query, headers, names, content);

  const auto day = time.substr(0, 8);
  const auto scope = fmt::format("{}/{}/s3/aws4_request", day, region);
  auto key = hmac_sha256("AWS4" + credentials.secret_key, day);
  key = hmac_sha256(key, region);
  key = hmac_sha256(key, "s3");
  key = hmac_sha256(key, "aws4_request");
  const auto signature = hex_of_bytes(hmac_sha256(
      key, fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(canonical))));
  request.headers.emplace_back(
      "Authorization",
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                  credentials.access_key, scope, names, signature));
}

}  // namespace qkscope
