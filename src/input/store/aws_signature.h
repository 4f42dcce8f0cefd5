// AWS Signature Version 4: what tells a store who sends a request. Not libcurl's own: its rules for
// queries and headers changed from version to version.
#pragma once

#include <string>

#include "input/hub/http.h"

namespace qkscope {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "" for credentials that last
};

// Adds the headers x-amz-date, x-amz-content-sha256, x-amz-security-token and Authorization. All
// headers that are there are signed. Path and query are percent-encoded already, the query sorted
// by name. `now`: seconds since 1970.
void sign_request(HttpRequest& request, const std::string& region,
                  const AwsCredentials& credentials, double now);

}  // namespace qkscope
