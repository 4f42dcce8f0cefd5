// Reading safetensors files. Writing them is public: write_safetensors in qkscope/model.h.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/io/mapped_file.h"
#include "input/checkpoint/kept_tensors.h"
#include "input/checkpoint/safetensors_header.h"
#include "qkscope/tensor.h"

namespace qkscope {

// A mapped file. Its tensors borrow from the mapping and live as long as this object.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  // A file of another format, whose tensors `parse` finds as if a header had named them.
  using Parse = SafetensorsHeader(std::span<const std::byte> file, const std::string& where);
  SafetensorsFile(const std::string& path, Parse* parse);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  // Zero copy. Old writers did not align the data section: a tensor at an address that does not
  // suit its type is copied once and the copy is kept. May be called from several threads.
  ConstTensorView tensor(const std::string& name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::unique_ptr<KeptTensors> copies_;
};

}  // namespace qkscope
