#include "input/hub/digest.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include "base/core/error.h"
#include "base/io/mapped_file.h"

namespace qkscope {

void Digest::Free::operator()(EVP_MD_CTX* context) const {
  EVP_MD_CTX_free(context);
}

Digest::Digest(Kind kind) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* method = kind == Kind::sha1 ? EVP_sha1() : EVP_sha256();
  if (EVP_DigestInit_ex(context_.get(), method, nullptr) != 1)
    failure("OpenSSL: this build of it has no {}", kind == Kind::sha1 ? "SHA-1" : "SHA-256");
}

void Digest::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Digest::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), sum, &size);
  return to_hex({sum, size});
}

std::string to_hex(std::span<const unsigned char> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string sha256_hex(std::string_view text) {
  Digest digest(Digest::Kind::sha256);
  digest.add(text);
  return digest.hex();
}

Digest git_digest(std::uint64_t size) {
  Digest digest(Digest::Kind::sha1);
  const auto head = fmt::format("blob {}", size);
  digest.add(std::string_view(head.c_str(), head.size() + 1));
  return digest;
}

std::string sha256_of_file(const std::string& path) {
  return sha256_hex(MappedFile(path).text());
}

std::string git_sha1_of_file(const std::string& path) {
  const MappedFile file(path);
  auto digest = git_digest(file.bytes().size());
  digest.add(file.bytes());
  return digest.hex();
}

}  // namespace qkscope
