// Builds GGUF files byte by byte for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace qkscope {

class GgufBytes {
 public:
  GgufBytes& text(const std::string& key, const std::string& value) {
    return entry(key, 8, of_text(value));
  }
  GgufBytes& number(const std::string& key, std::uint32_t value) {
    return entry(key, 4, of(value));
  }
  GgufBytes& real(const std::string& key, float value) { return entry(key, 6, of(value)); }
  GgufBytes& flag(const std::string& key, bool value) {
    return entry(key, 7, std::string(1, value ? '\1' : '\0'));
  }
  GgufBytes& texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes;
    for (const auto& value : values) bytes += of_text(value);
    return list(key, 8, values.size(), bytes);
  }
  GgufBytes& integers(const std::string& key, const std::vector<std::int32_t>& values) {
    return list(key, 5, values.size(), of_all(values));
  }
  GgufBytes& flags(const std::string& key, const std::vector<bool>& values) {
    std::string bytes;
    for (const bool value : values) bytes += value ? '\1' : '\0';
    return list(key, 7, values.size(), bytes);
  }
  GgufBytes& reals(const std::string& key, const std::vector<float>& values) {
    return list(key, 6, values.size(), of_all(values));
  }
  // Writes a list of `count` values of value type `type` with the given raw bytes.
  GgufBytes& list(const std::string& key, std::uint32_t type, std::uint64_t count,
                  const std::string& bytes) {
    return entry(key, 9, of(type) + of(count) + bytes);
  }
  GgufBytes& entry(const std::string& key, std::uint32_t type, const std::string& bytes) {
    ++keys_;
    metadata_ += of_text(key) + of(type) + bytes;
    return *this;
  }
  // `sizes` are in file order, innermost dimension first; `offset` is the position of the data.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& sizes,
                    std::uint32_t type, std::uint64_t offset) {
    ++tensors_;
    infos_ += of_text(name) + of(static_cast<std::uint32_t>(sizes.size())) + of_all(sizes) +
              of(type) + of(offset);
    return *this;
  }
  GgufBytes& data(std::size_t bytes) {
    data_.assign(bytes, '\0');
    return *this;
  }

  std::string build(std::uint32_t version = 3) const {
    auto file = "GGUF" + of(version) + of(tensors_) + of(keys_) + metadata_ + infos_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

  template <typename T>
  static std::string of(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }

 private:
  static std::string of_text(const std::string& text) {
    return of(static_cast<std::uint64_t>(text.size())) + text;
  }
  template <typename T>
  static std::string of_all(const std::vector<T>& values) {
    std::string bytes;
    for (const auto value : values) bytes += of(value);
    return bytes;
  }

  std::uint64_t keys_ = 0, tensors_ = 0;
  std::string metadata_, infos_, data_;
};

}  // namespace qkscope
