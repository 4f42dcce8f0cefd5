// Files that torch.load reads with weights_only, written without PyTorch: dictionaries, lists,
// texts, numbers and float32 tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "capture/exports/zip_file.h"

namespace qkscope {

// One value, from outside to inside: begin_dict(), then key and value in turn, end_dict().
class TorchFile {
 public:
  explicit TorchFile(std::string name);  // of the folder inside the file

  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void text(std::string_view value);
  void integer(std::int64_t value);  // of 32 bits
  void real(double value);
  void boolean(bool value);
  void none();
  void tensor(std::span<const float> values);  // of one dimension

  // The whole file.
  std::string finish();

 private:
  void put(char byte) { pickle_ += byte; }
  void put_global(std::string_view module, std::string_view name);
  void put_storage(std::size_t size);

  std::string name_;
  std::string pickle_;  // protocol 2
  ZipFile zip_;
  std::string storages_;  // all tensors' numbers, one after another
  std::vector<std::size_t> sizes_;
};

}  // namespace qkscope
