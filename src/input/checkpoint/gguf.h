// Header of a GGUF file (the llama.cpp format): metadata, element types and tensor positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/json.h"
#include "input/checkpoint/gguf_blocks.h"

namespace qkscope {

struct GgufTensor {
  std::string name;
  const GgufType* type;
  std::vector<std::int64_t>
      shape;            // row-major, outermost dimension first; the file stores the reverse
  std::uint64_t begin;  // byte offset in the file
  std::uint64_t end;

  std::int64_t count() const;  // number of elements
};

struct GgufHeader {
  // Values are numbers, booleans, strings or lists. Strings are raw bytes and may be invalid UTF-8.
  std::map<std::string, Json> metadata;
  std::map<std::string, GgufTensor> tensors;
};

bool is_gguf(std::span<const std::byte> file);  // checks the magic number

// Parses and validates the header: lengths are checked before allocation, names are unique, element
// types are supported, tensors lie inside the file. Error messages start with `where`.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

// Typed access to GGUF metadata. Errors name the key and the file.
class GgufMetadata {
 public:
  GgufMetadata(const GgufHeader& header, std::string where)
      : header_(&header), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(const std::string& key) const { return header_->metadata.contains(key); }
  const Json& at(const std::string& key) const;  // throws if the key is missing
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::int64_t natural(const std::string& key) const;  // an integer >= 0
  std::int64_t natural(const std::string& key, std::int64_t otherwise) const;
  double number(const std::string& key) const;
  const Json& list(const std::string& key) const;

  [[noreturn]] void complain(const std::string& key, std::string_view expected) const;

 private:
  const GgufHeader* header_;
  std::string where_;
};

}  // namespace qkscope
