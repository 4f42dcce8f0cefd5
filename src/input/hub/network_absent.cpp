// Replaces network.cpp in builds without libcurl or OpenSSL.
#include "base/core/error.h"
#include "input/hub/http.h"

namespace qkscope {
namespace {

[[noreturn]] void throw_no_network() {
  throw_failure(
      "this build of qkscope cannot talk to the Hugging Face Hub: it was made without libcurl or "
      "OpenSSL; install libcurl4-openssl-dev and libssl-dev and build again, or fill the cache "
      "with 'hf download'");
}

}  // namespace

HttpResponse perform_http_request(const HttpRequest&) {
  throw_no_network();
}

void Digest::HashContextDeleter::operator()(evp_md_ctx_st*) const {}
Digest::Digest(HashAlgorithm) {
  throw_no_network();
}
void Digest::update(std::span<const std::byte>) {
  throw_no_network();
}
std::string Digest::finalize_hex() {
  throw_no_network();
}

}  // namespace qkscope
