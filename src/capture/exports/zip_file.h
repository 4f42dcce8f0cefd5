// Zip files whose members are stored as they are, as PyTorch writes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

class ZipFile {
 public:
  // Members begin at multiples of 64 bytes, so that a reader may map their numbers.
  void add(const std::string& name, std::string_view content);

  // The whole file. At most 65,535 members and 4 GiB: more is bad input.
  std::string finish();

 private:
  struct Member {
    std::string name;
    std::uint32_t checksum = 0;
    std::uint32_t size = 0;
    std::uint32_t offset = 0;
  };

  std::string bytes_;
  std::vector<Member> members_;
};

}  // namespace qkscope
