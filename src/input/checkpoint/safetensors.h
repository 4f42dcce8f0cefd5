// Reads safetensors and PyTorch zip files, and writes safetensors files. A safetensors file has an
// 8-byte little-endian header length, a JSON object with the dtype, shape and data offsets of every
// tensor, and the data section.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Caches computed tensors for the lifetime of a checkpoint. Thread-safe. Views stay valid because
// std::map never moves its elements.
class TensorCache {
 public:
  template <typename Compute>
  ConstTensorView get_or_make(const std::string& name, Compute compute) {
    const std::lock_guard lock(mutex_);
    auto found = tensors_.find(name);
    if (found == tensors_.end()) found = tensors_.emplace(name, compute()).first;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
};

struct TensorHeaderEntry {
  DType dtype;               // u8 if the stored dtype is unsupported; `readable` is then false
  std::string stored_dtype;  // the dtype's name in the file, e.g. "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t begin;  // byte offset in the data section
  std::uint64_t end;
  bool readable = true;
};

struct SafetensorsHeader {
  std::map<std::string, TensorHeaderEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // byte offset of the data section in the file
};

// Parses the header and validates it against the whole file: names are unique, shape and dtype
// match the byte count, and the tensors cover the data section exactly once. Tensors of an
// unsupported dtype are listed with readable = false. Error messages start with `where`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where);

// A memory-mapped safetensors file. Tensor views must not outlive the SafetensorsFile.
class SafetensorsFile {
 public:
  // `parse` reads the header; parsers of other formats return an equivalent safetensors header.
  using HeaderParser = SafetensorsHeader(std::span<const std::byte> file, const std::string& where);
  explicit SafetensorsFile(const std::string& path, HeaderParser* parse = parse_safetensors_header)
      : file_(path), header_(parse(file_.bytes(), path)) {}

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  // Returns a zero-copy view. A tensor that is not aligned for its dtype (files of old writers) is
  // copied once and cached. Thread-safe.
  ConstTensorView tensor(const std::string& name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::unique_ptr<TensorCache> aligned_copies_ = std::make_unique<TensorCache>();
};

// ---- Streaming writer: tensors are written in pieces and need not fit in memory together

struct OutputTensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;

  std::uint64_t size_bytes() const {
    return static_cast<std::uint64_t>(shape.count()) * dtype_size(dtype);
  }
};

class SafetensorsWriter {
 public:
  // Writes the header and aligns the data section to 64 bytes. Duplicate names are bad input.
  SafetensorsWriter(const std::string& path, std::span<const OutputTensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata);

  // Appends bytes to the data section. Tensors must be written in the constructor's order.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Renames the temporary file to its final name. All bytes must have been written.
  void commit();

 private:
  OutputFile file_;
  std::uint64_t end_ = 0;  // size of the complete file in bytes
};

// ---- PyTorch checkpoints since version 1.6: a zip file with one pickle that describes the
// tensors, and one member per storage

// Returns the tensors of a PyTorch zip file and their byte ranges as a safetensors header.
SafetensorsHeader parse_torch_zip_header(std::span<const std::byte> file, const std::string& where);

// A tensor as a strided view of a storage. Each storage is one member of the zip file.
struct PickledTensor {
  std::string storage;  // storage key: "0", "1", ...
  DType dtype = DType::f32;
  std::int64_t offset = 0;  // in elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
};

// Restricted unpickler (tensor_pickle.cpp): accepts only the opcodes and globals of tensor
// dictionaries, so that no code can run. Returns the state dictionary. Error messages start with
// `where`.
std::map<std::string, PickledTensor> read_tensor_pickle(std::span<const std::byte> pickle,
                                                        const std::string& where);

}  // namespace qkscope
