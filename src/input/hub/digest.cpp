#include "input/hub/digest.h"

#include <openssl/evp.h>

#include "base/core/error.h"
#include "base/io/mapped_file.h"

namespace qkscope {

struct Digest::State {
  struct Free {
    void operator()(EVP_MD_CTX* freed) const { EVP_MD_CTX_free(freed); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Digest::Digest(Kind kind) : state_(std::make_unique<State>()) {
  const EVP_MD* method = kind == Kind::sha1 ? EVP_sha1() : EVP_sha256();
  if (EVP_DigestInit_ex(state_->context.get(), method, nullptr) != 1)
    failure("OpenSSL: this build of it has no {}", kind == Kind::sha1 ? "SHA-1" : "SHA-256");
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size());
}

std::string Digest::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context.get(), sum, &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", sum[i]);
  return text;
}

Digest git_digest(std::uint64_t size) {
  Digest digest(Digest::Kind::sha1);
  const auto head = fmt::format("blob {}", size);
  digest.add(std::string_view(head.c_str(), head.size() + 1));
  return digest;
}

std::string sha256_of_file(const std::string& path) {
  const MappedFile file(path);
  Digest digest(Digest::Kind::sha256);
  digest.add(file.bytes());
  return digest.hex();
}

std::string git_sha1_of_file(const std::string& path) {
  const MappedFile file(path);
  auto digest = git_digest(file.bytes().size());
  digest.add(file.bytes());
  return digest.hex();
}

}  // namespace qkscope
