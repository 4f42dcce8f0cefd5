// The directory of a zip file whose members are stored as they are, which PyTorch writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace qkscope {

struct ZipMember {
  std::uint64_t begin = 0;  // of its bytes within the file
  std::uint64_t size = 0;
};

bool is_zip(std::span<const std::byte> file);

// By name; a compressed or encrypted member, and one that does not lie in the file, is refused.
// `where` names the file in messages.
std::map<std::string, ZipMember> read_zip_directory(std::span<const std::byte> file,
                                                    const std::string& where);

}  // namespace qkscope
