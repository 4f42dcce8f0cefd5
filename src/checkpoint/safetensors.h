// safetensors files: eight bytes of header length (little endian), a JSON header that names every
// tensor with its dtype, shape and place, then the data section.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/mapped_file.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct TensorEntry {
  DType dtype;               // u8 where we have no such type: `readable` is false then
  std::string stored_dtype;  // as the file spells it: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t begin;  // bytes within the data section
  std::uint64_t end;
  bool readable = true;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // of the data section within the file
};

// Reads and checks the header against the whole file: every name once, every shape and dtype
// consistent with its bytes, the data section covered exactly once. `where` names the file in
// messages. A tensor of a dtype we do not know is kept, not readable.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where);

// A mapped file. Its tensors borrow from the mapping and live as long as this object.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  // Zero copy. Old writers did not align the data section: a tensor at an address that does not
  // suit its type is copied once and the copy is kept. May be called from several threads.
  ConstTensorView tensor(const std::string& name) const;

 private:
  struct AlignedCopies;

  MappedFile file_;
  SafetensorsHeader header_;
  std::unique_ptr<AlignedCopies> copies_;
};

}  // namespace qkscope
