// Reader for safetensors files: an 8-byte little-endian header length, a JSON object with dtype,
// shape and data offsets of every tensor, then the data section.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/io/mapped_file.h"
#include "input/checkpoint/tensor_cache.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct TensorEntry {
  DType dtype;               // u8 if the stored dtype is unsupported; `readable` is then false
  std::string stored_dtype;  // the dtype's name in the file, e.g. "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t begin;  // byte offset in the data section
  std::uint64_t end;
  bool readable = true;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // byte offset of the data section in the file
};

// Parses the header and validates it against the whole file: names are unique, shape and dtype
// match the byte count, and the tensors cover the data section exactly once. Tensors of an
// unsupported dtype are listed with readable = false. Error messages start with `where`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where);

// A memory-mapped safetensors file. Tensor views are valid as long as the SafetensorsFile.
class SafetensorsFile {
 public:
  // For other formats, `parse` must describe the tensors as a safetensors header.
  using Parse = SafetensorsHeader(std::span<const std::byte> file, const std::string& where);
  explicit SafetensorsFile(const std::string& path, Parse* parse = parse_safetensors_header)
      : file_(path), header_(parse(file_.bytes(), path)) {}

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  // Returns a zero-copy view. A tensor whose address is not aligned for its dtype, as old writers
  // produce, is copied once and the copy is cached. Thread-safe.
  ConstTensorView tensor(const std::string& name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::unique_ptr<TensorCache> aligned_copies_ = std::make_unique<TensorCache>();
};

}  // namespace qkscope
