#include "input/hub/certificates.h"

#include <cstdlib>

#include <unistd.h>

namespace qkscope {

const std::vector<std::string>& certificate_places() {
  static const std::vector<std::string> places = {
      "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
      "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, Red Hat
      "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, Red Hat
      "/etc/ssl/ca-bundle.pem",                             // openSUSE
      "/etc/ssl/cert.pem"};                                 // Alpine
  return places;
}

std::string certificates_file(const std::string& own) {
  if (const char* chosen = std::getenv("SSL_CERT_FILE"); chosen != nullptr && *chosen != '\0')
    return chosen;
  const auto readable = [](const std::string& file) { return ::access(file.c_str(), R_OK) == 0; };
  if (!own.empty() && readable(own)) return own;
  for (const auto& place : certificate_places())
    if (readable(place)) return place;
  return {};
}

}  // namespace qkscope
