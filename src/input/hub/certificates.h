// Which certificates of authorities servers are checked against.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

// The file that holds them: $SSL_CERT_FILE where it is set; otherwise the first that can be read of
// libcurl's own place (may be empty) and those of the distributions, because a package brings a
// libcurl that was built for one of them. "" where there is none.
std::string certificates_file(const std::string& own);

// The places of the distributions.
const std::vector<std::string>& certificate_places();

}  // namespace qkscope
