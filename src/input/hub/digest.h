// Incremental SHA-1 and SHA-256, the hashes by which the Hub identifies content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // EVP_MD_CTX of OpenSSL

namespace qkscope {

class Digest {
 public:
  enum class Kind { sha1, sha256 };

  explicit Digest(Kind kind);

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string hex();  // finalizes the digest; call once

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Starts the git blob hash of a file: SHA-1 over "blob SIZE\0" followed by the content.
Digest git_digest(std::uint64_t size);

std::string sha256_hex(std::string_view text);
std::string to_hex(std::span<const unsigned char> bytes);

std::string sha256_of_file(const std::string& path);
std::string git_sha1_of_file(const std::string& path);

}  // namespace qkscope
