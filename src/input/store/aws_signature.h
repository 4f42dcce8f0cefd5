// AWS Signature Version 4 authentication. Not delegated to libcurl, whose canonicalization of
// queries and headers differs between versions.
#pragma once

#include <string>

#include "input/hub/http.h"

namespace qkscope {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "" for permanent credentials
};

// Adds the headers x-amz-date, x-amz-content-sha256, x-amz-security-token and Authorization. All
// existing headers are signed. The path must be percent-encoded and the query sorted by name. `now`
// is Unix time in seconds.
void sign_request(HttpRequest& request, const std::string& region,
                  const AwsCredentials& credentials, double now);

}  // namespace qkscope
