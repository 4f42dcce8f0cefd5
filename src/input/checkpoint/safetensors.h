// Reader for safetensors files. The writer is public: write_safetensors() in qkscope/model.h.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/io/mapped_file.h"
#include "input/checkpoint/kept_tensors.h"
#include "input/checkpoint/safetensors_header.h"
#include "qkscope/tensor.h"

namespace qkscope {

// A memory-mapped safetensors file. Tensor views are valid as long as the SafetensorsFile.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  // Opens a file of another format; `parse` must describe its tensors as a safetensors header.
  using Parse = SafetensorsHeader(std::span<const std::byte> file, const std::string& where);
  SafetensorsFile(const std::string& path, Parse* parse);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  // Returns a zero-copy view. A tensor whose address is not aligned for its dtype, as old writers
  // produce, is copied once and the copy is cached. Thread-safe.
  ConstTensorView tensor(const std::string& name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::unique_ptr<KeptTensors> copies_;
};

}  // namespace qkscope
