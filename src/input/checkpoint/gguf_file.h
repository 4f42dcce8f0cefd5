// Weights of a GGUF file, presented as the Hugging Face checkpoint it was converted from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/io/mapped_file.h"
#include "input/checkpoint/gguf.h"
#include "input/checkpoint/gguf_model.h"
#include "input/checkpoint/kept_tensors.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Returns the GGUF file to use: `path` itself, or the only GGUF file of a folder without other
// weights. Returns "" if there is none; throws bad input if there are several.
std::string find_gguf(const std::string& path);

// A memory-mapped GGUF file. Tensor views are valid as long as the GgufFile.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const { return file_.path(); }
  const GgufModel& model() const { return *model_; }

  // Returns a tensor by its Hugging Face name. Plain numbers are a view of the file; quantized
  // tensors are dequantized to float32 on first use and cached. Thread-safe.
  ConstTensorView tensor(const std::string& name) const;

  std::uint64_t stored_bytes() const;   // size of all tensors in the file
  std::uint64_t widened_bytes() const;  // memory for dequantized copies once every tensor was used

 private:
  MappedFile file_;
  std::unique_ptr<const GgufHeader> header_;  // model_ points into the header
  std::unique_ptr<const GgufModel> model_;
  std::unique_ptr<KeptTensors> widened_;
};

}  // namespace qkscope
