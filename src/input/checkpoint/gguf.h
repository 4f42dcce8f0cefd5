// The header of a GGUF file, the format of llama.cpp: metadata, and where each tensor lies.
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
  std::vector<std::int64_t> shape;  // rows first: the file has them the other way round
  std::uint64_t begin;              // bytes within the file
  std::uint64_t end;

  std::int64_t count() const;  // elements
};

struct GgufHeader {
  // Numbers, booleans, strings and lists of them. Strings are the file's bytes, not always UTF-8.
  std::map<std::string, Json> metadata;
  std::map<std::string, GgufTensor> tensors;
};

bool is_gguf(std::span<const std::byte> file);  // by its first bytes

// Reads and checks all of the header: lengths before anything is allocated, names once, types that
// can be widened, tensors within the file. `where` names the file in messages.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

// The metadata of a file with messages that name key and file.
class GgufMetadata {
 public:
  GgufMetadata(const GgufHeader& header, std::string where)
      : header_(&header), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(const std::string& key) const { return header_->metadata.contains(key); }
  const Json& at(const std::string& key) const;  // must be there
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::int64_t natural(const std::string& key) const;  // zero or more
  std::int64_t natural(const std::string& key, std::int64_t otherwise) const;
  double number(const std::string& key) const;
  const Json& list(const std::string& key) const;

  [[noreturn]] void complain(const std::string& key, std::string_view expected) const;

 private:
  const GgufHeader* header_;
  std::string where_;
};

}  // namespace qkscope
