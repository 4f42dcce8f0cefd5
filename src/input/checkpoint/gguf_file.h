// Reading the weights of a GGUF file.
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

// The GGUF file that is meant: `path` itself, or the only one of a folder without other weights. ""
// where there is none; several are bad input that lists them.
std::string find_gguf(const std::string& path);

// A mapped file. Its tensors live as long as this object.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const { return file_.path(); }
  const GgufModel& model() const { return *model_; }

  // By the name in the checkpoint. Plain numbers are used where they lie; blocks are widened to
  // float32 when they are first asked for, and kept. May be called from several threads.
  ConstTensorView tensor(const std::string& name) const;

  std::uint64_t stored_bytes() const;   // of all tensors in the file
  std::uint64_t widened_bytes() const;  // of memory that they take beside it once all are used

 private:
  MappedFile file_;
  std::unique_ptr<const GgufHeader> header_;  // the model points into it
  std::unique_ptr<const GgufModel> model_;
  std::unique_ptr<KeptTensors> widened_;
};

}  // namespace qkscope
