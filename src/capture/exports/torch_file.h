// Writes files that torch.load(weights_only=True) reads, without PyTorch: a ZIP archive of a pickle
// with dictionaries, lists, strings, numbers and float32 tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

// A ZIP archive of uncompressed members, as PyTorch writes it.
class ZipFile {
 public:
  // Aligns the content to 64 bytes, so that a reader may map it into memory.
  void add(const std::string& name, std::string_view content);

  // Returns the bytes of the archive. Throws bad input above 65,535 members or 4 GiB.
  std::string finish();

 private:
  struct Member {
    std::string name;
    std::uint32_t crc32 = 0;
    std::uint32_t size = 0;
    std::uint32_t offset = 0;
  };
  void put_common_fields(const Member& member);

  std::string bytes_;
  std::vector<Member> members_;
};

// Holds one value, written depth first: begin_dict(), keys and values in turn, end_dict().
class TorchFile {
 public:
  explicit TorchFile(std::string name);  // of the folder inside the archive

  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void text(std::string_view value);
  void integer(std::int64_t value);  // must fit 32 bits
  void real(double value);
  void boolean(bool value);
  void none();
  void tensor(std::span<const float> values);  // one dimension

  // Returns the bytes of the file.
  std::string finish();

 private:
  void put(char byte) { pickle_ += byte; }
  void put_global(std::string_view module, std::string_view name);
  void put_storage(std::size_t size);

  std::string name_;
  std::string pickle_;  // protocol 2
  ZipFile zip_;
  std::string storages_;            // the values of all tensors, concatenated
  std::vector<std::size_t> sizes_;  // bytes of each tensor
};

}  // namespace qkscope
