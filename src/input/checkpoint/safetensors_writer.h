// Streaming writer for safetensors files: tensors are written piece by piece and need not be in
// memory together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/io/output_file.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Name, dtype and shape of a tensor to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;

  std::uint64_t size_bytes() const {
    return static_cast<std::uint64_t>(shape.count()) * dtype_size(dtype);
  }
};

class SafetensorsWriter {
 public:
  // Writes the header. The data section is aligned to 64 bytes. Throws bad input for duplicate
  // names.
  SafetensorsWriter(const std::string& path, std::span<const TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata);

  // Appends the next bytes of the data section; tensors follow in the order of `tensors`.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Renames the temporary file to its final name. All bytes must have been written.
  void commit();

 private:
  OutputFile file_;
  std::uint64_t end_ = 0;  // size of the complete file in bytes
};

}  // namespace qkscope
