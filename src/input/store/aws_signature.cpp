#include "input/store/aws_signature.h"

#include <array>
#include <ctime>
#include <map>
#include <span>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/hmac.h>

#include "base/core/text.h"
#include "input/hub/digest.h"

namespace qkscope {
namespace {

using Sha256 = std::array<unsigned char, 32>;

// HMAC-SHA256 of RFC 2104.
Sha256 hmac_sha256(std::span<const unsigned char> key, std::string_view message) {
  Sha256 result;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), result.data(),
       nullptr);
  return result;
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

  std::map<std::string, std::string> sorted = {{"host", request.url.server()}};
  for (const auto& [name, value] : request.headers) sorted[ascii_lower(name)] = value;
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
  const auto secret = "AWS4" + credentials.secret_key;
  auto key =
      hmac_sha256({reinterpret_cast<const unsigned char*>(secret.data()), secret.size()}, day);
  for (const std::string_view part :
       {std::string_view(region), std::string_view("s3"), std::string_view("aws4_request")})
    key = hmac_sha256(key, part);
  const auto signature = to_hex(hmac_sha256(
      key, fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(canonical))));
  request.headers.emplace_back(
      "Authorization",
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                  credentials.access_key, scope, names, signature));
}

}  // namespace qkscope
