// Parquet: "PAR1", pages (a Thrift header and a body), the footer (Thrift), its size, "PAR1".
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "mutate_structure.h"

namespace qkscope {
namespace {

// Types of the compact protocol of Thrift.
enum Type : std::uint8_t {
  kTrue = 1,
  kFalse,
  kByte,
  kI16,
  kI32,
  kI64,
  kDouble,
  kBinary,
  kList,
  kSet,
  kMap,
  kStruct
};

constexpr int kDeepest = 32;
constexpr std::size_t kMostElements = 4096;

// A value and, in a structure, the number of its field.
struct Value {
  std::uint8_t type = 0;
  std::int64_t field = 0;
  std::int64_t number = 0;           // of booleans, bytes and integers
  std::string bytes = {};            // of binaries and doubles
  std::uint8_t element = 0;          // type of the elements of a list
  std::vector<Value> children = {};  // fields or elements
};

struct Malformed : std::runtime_error {
  Malformed() : std::runtime_error("not Thrift") {}
};

class ThriftReader {
 public:
  explicit ThriftReader(std::string_view text) : text_(text) {}

  Value structure(int depth = 0) {
    Value result{.type = kStruct};
    if (depth > kDeepest) throw Malformed();
    for (std::int64_t field = 0;;) {
      const auto head = byte();
      const auto type = static_cast<std::uint8_t>(head & 15);
      if (type == 0) return result;
      field = static_cast<std::int16_t>(head >> 4 != 0 ? field + (head >> 4) : signed_number());
      auto value = type == kTrue || type == kFalse ? Value{.type = type} : read(type, depth + 1);
      value.field = field;
      result.children.push_back(std::move(value));
    }
  }
  std::size_t position() const { return at_; }

 private:
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }

  std::string_view take(std::uint64_t size) {
    if (size > text_.size() - at_) throw Malformed();
    at_ += size;
    return text_.substr(at_ - size, size);
  }

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto next = byte();
      if (shift < 64) value |= static_cast<std::uint64_t>(next & 127) << shift;
      if (next < 128) return value;
    }
    throw Malformed();
  }

  std::int64_t signed_number() {  // zigzag
    const auto value = number();
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
  }

  Value read(std::uint8_t type, int depth) {
    Value value{.type = type};
    switch (type) {
      case kTrue:
      case kFalse:
      case kByte:
        value.number = byte();
        return value;
      case kI16:
      case kI32:
      case kI64:
        value.number = signed_number();
        return value;
      case kDouble:
        value.bytes = take(8);
        return value;
      case kBinary:
        value.bytes = take(number());
        return value;
      case kList:
      case kSet:
        return list(type, depth);
      case kStruct:
        return structure(depth);
      default:
        throw Malformed();
    }
  }

  Value list(std::uint8_t type, int depth) {
    Value value{.type = type};
    const auto head = byte();
    value.element = head & 15;
    const std::uint64_t size = head >> 4 == 15 ? number() : head >> 4;
    if (size > kMostElements || depth > kDeepest) throw Malformed();
    for (std::uint64_t i = 0; i < size; ++i)
      value.children.push_back(read(value.element, depth + 1));
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

class ThriftWriter {
 public:
  std::string structure(const Value& value) {
    std::int64_t last = 0;
    for (const auto& field : value.children) {
      const auto step = field.field - last;
      if (step > 0 && step < 16) {
        byte(static_cast<std::uint64_t>(step << 4 | field.type));
      } else {
        byte(field.type);
        signed_number(field.field);
      }
      last = field.field;
      if (field.type != kTrue && field.type != kFalse) write(field);
    }
    byte(0);
    return out_;
  }

 private:
  void byte(std::uint64_t value) { out_ += static_cast<char>(value); }
  void number(std::uint64_t value) {
    for (; value >= 128; value >>= 7) byte(value | 128);
    byte(value);
  }
  void signed_number(std::int64_t value) {
    number(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }

  void write(const Value& value) {
    switch (value.type) {
      case kTrue:
      case kFalse:
      case kByte:
        return byte(static_cast<std::uint64_t>(value.number));
      case kI16:
      case kI32:
      case kI64:
        return signed_number(value.number);
      case kBinary:
        number(value.bytes.size());
        [[fallthrough]];
      case kDouble:
        out_ += value.bytes;
        return;
      case kStruct:
        structure(value);
        return;
      default:
        break;
    }
    const auto size = value.children.size();
    byte((size < 15 ? size : 15) << 4 | value.element);
    if (size >= 15) number(size);
    for (const auto& child : value.children) write(child);
  }

  std::string out_;
};

struct Page {
  Value header;
  std::string body;
};

constexpr std::int64_t kCompressedSize = 3, kPageChecksum = 4;  // fields of a page header

std::optional<std::int64_t> integer_field(const Value& value, std::int64_t field) {
  for (const auto& child : value.children)
    if (child.field == field) return child.number;
  return {};
}

class ParquetMutator {
 public:
  ParquetMutator(std::string_view file, std::uint64_t seed) : random_(seed) {
    std::uint32_t size = 0;
    if (file.size() < 12) throw Malformed();
    std::memcpy(&size, file.data() + file.size() - 8, sizeof size);
    if (size > file.size() - 12) throw Malformed();
    const auto begin = file.size() - 8 - size;
    footer_ = ThriftReader(file.substr(begin, size)).structure();
    auto rest = file.substr(4, begin - 4);
    try {
      while (!rest.empty()) read_page(rest);
    } catch (const Malformed&) {  // the rest is no page, for example an index
    }
    rest_ = rest;
  }

  std::string run() {
    for (auto edits = 1 + below(3); edits > 0; --edits) {
      const auto place = below(8);
      if (place < 5 || pages_.empty()) {
        edit(footer_);
      } else {
        auto& page = pages_[below(pages_.size())];
        if (place < 7)
          edit(page.header);
        else
          edit_body(page);
      }
    }
    return file();
  }

 private:
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void read_page(std::string_view& rest) {
    ThriftReader reader(rest);
    Page page{.header = reader.structure(), .body = {}};
    const auto size = integer_field(page.header, kCompressedSize);
    if (!size || *size < 0 || static_cast<std::uint64_t>(*size) > rest.size() - reader.position())
      throw Malformed();
    page.body = rest.substr(reader.position(), static_cast<std::size_t>(*size));
    rest.remove_prefix(reader.position() + page.body.size());
    pages_.push_back(std::move(page));
  }

  std::string file() const {
    std::string out = "PAR1";
    for (const auto& page : pages_) out += ThriftWriter().structure(page.header) + page.body;
    out += rest_;
    const auto footer = ThriftWriter().structure(footer_);
    const auto size = static_cast<std::uint32_t>(footer.size());
    out += footer;
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    return out + "PAR1";
  }

  static void collect(Value& value, std::vector<Value*>& values) {
    values.push_back(&value);
    for (auto& child : value.children) collect(child, values);
  }

  void edit(Value& root) {
    std::vector<Value*> values;
    collect(root, values);
    auto& value = *values[below(values.size())];
    switch (value.type) {
      case kTrue:
      case kFalse:
        value.type = static_cast<std::uint8_t>(kTrue + kFalse - value.type);
        return;
      case kByte:
      case kI16:
      case kI32:
      case kI64:
        value.number = awkward_integer(value.number, random_());
        return;
      case kDouble:
      case kBinary:
        return edit_bytes(value);
      default:
        edit_children(value, values);
    }
  }

  void edit_bytes(Value& value) {
    if (value.type == kBinary && below(3) == 0)
      value.bytes.resize(below(2 * value.bytes.size() + 2));
    if (!value.bytes.empty())
      value.bytes[below(value.bytes.size())] = static_cast<char>(random_() >> 32);
  }

  // Removes, repeats, exchanges or renumbers fields and elements.
  void edit_children(Value& value, const std::vector<Value*>& values) {
    auto& children = value.children;
    if (children.empty()) return;
    const auto at = below(children.size());
    switch (below(5)) {
      case 0:
        children.erase(children.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 1: {
        const auto copy = children[at];
        children.insert(children.begin() + static_cast<std::ptrdiff_t>(at), 1 + below(20), copy);
        return;
      }
      case 2:
        std::swap(children[at], children[below(children.size())]);
        return;
      case 3: {
        const Value other = *values[below(values.size())];
        if (value.type != kStruct && other.type != value.element) return;
        const auto field = children[at].field;
        children[at] = other;
        children[at].field = field;
        return;
      }
      default:
        if (value.type == kStruct) children[at].field = 1 + static_cast<std::int64_t>(below(20));
    }
  }

  void edit_body(Page& page) {
    if (page.body.empty()) return;
    page.body[below(page.body.size())] = static_cast<char>(random_() >> 32);
    for (auto& field : page.header.children)
      if (field.field == kPageChecksum) field.number = static_cast<std::int32_t>(crc32(page.body));
  }

  std::mt19937_64 random_;
  Value footer_;
  std::vector<Page> pages_;
  std::string rest_;
};

}  // namespace

std::string mutate_parquet(std::string_view file, std::uint64_t seed) {
  try {
    return ParquetMutator(file, seed).run();
  } catch (const Malformed&) {
    return std::string(file);
  }
}

}  // namespace qkscope
