// Writes a safetensors file whose tensors come one after another, and each in pieces, so that they
// need not be in memory together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/io/output_file.h"
#include "qkscope/tensor.h"

namespace qkscope {

// A tensor that will be written.
struct TensorPlace {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;

  std::uint64_t size_bytes() const {
    return static_cast<std::uint64_t>(shape.count()) * dtype_size(dtype);
  }
};

class SafetensorsWriter {
 public:
  // The data section starts at a multiple of 64 bytes. Names must differ.
  SafetensorsWriter(const std::string& path, std::span<const TensorPlace> tensors,
                    const std::map<std::string, std::string>& metadata);

  // The next bytes of the tensors, in the order in which they were named.
  void write(std::span<const std::byte> bytes);
  // The file appears under its name; all bytes were written.
  void commit();

 private:
  OutputFile file_;
  std::uint64_t end_ = 0;  // of the whole file
};

}  // namespace qkscope
