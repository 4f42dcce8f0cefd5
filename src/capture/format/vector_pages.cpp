#include "capture/format/vector_pages.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include <parquet/column_page.h>
#include <parquet/encoding.h>

namespace qkscope {
namespace {

using Bytes = std::span<const std::uint8_t>;

// Removes the first `size` bytes from `bytes` and returns them; nullopt when `bytes` is shorter.
std::optional<Bytes> take(Bytes& bytes, std::size_t size) {
  if (size > bytes.size()) return std::nullopt;
  const Bytes taken = bytes.first(size);
  bytes = bytes.subspan(size);
  return taken;
}

// Visits `count` levels in Parquet's RLE/bit-packed hybrid encoding. Calls run(level, count) for a
// run and packed(byte, count) for each byte of packed levels; both return false to stop. Returns
// true after all levels were visited.
template <typename Run, typename Packed>
bool walk_levels(Bytes bytes, int bit_width, std::int64_t count, const Run& run,
                 const Packed& packed) {
  const std::int64_t per_byte = 8 / bit_width;
  while (count > 0) {
    std::uint64_t header = 0;
    for (int shift = 0;; shift += 7) {
      if (bytes.empty() || shift > 28) return false;
      header |= static_cast<std::uint64_t>(bytes.front() & 0x7FU) << shift;
      const bool last = bytes.front() < 0x80;
      bytes = bytes.subspan(1);
      if (last) break;
    }
    if (header < 2) return false;  // an empty run
    if (header % 2 == 0) {
      const auto length = std::min(count, static_cast<std::int64_t>(header / 2));
      if (bytes.empty() || !run(bytes.front(), length)) return false;
      bytes = bytes.subspan(1);
      count -= length;
      continue;
    }
    const auto groups = take(bytes, header / 2 * static_cast<std::size_t>(bit_width));
    if (!groups) return false;
    for (const auto byte : *groups) {
      if (count <= 0) break;
      const auto here = std::min(count, per_byte);
      if (!packed(byte, here)) return false;
      count -= here;
    }
  }
  return true;
}

// Whether no value is null: every definition level is the highest.
bool all_defined(Bytes levels, std::int16_t highest, std::int64_t count) {
  const int bit_width = highest == 1 ? 1 : 2;
  unsigned full = 0;  // a byte filled with the highest level
  for (int shift = 0; shift < 8; shift += bit_width)
    full |= static_cast<unsigned>(highest) << shift;
  return walk_levels(
      levels, bit_width, count, [&](std::uint8_t level, std::int64_t) { return level == highest; },
      [&](std::uint8_t byte, std::int64_t here) {
        const unsigned used = (1U << (here * bit_width)) - 1;
        return (byte & used) == (full & used);
      });
}

// Checks the repetition levels of lists of equal length: 0 at the start of a list, else 1.
class ListWalk {
 public:
  explicit ListWalk(std::int64_t length) : length_(length) {}

  bool take(Bytes levels, std::int64_t count) {
    return walk_levels(
        levels, 1, count,
        [&](std::uint8_t level, std::int64_t here) {
          // Exactly every length_-th value starts a list.
          const bool fits = level == 0 ? place_ == 0 && here == 1
                                       : level == 1 && place_ > 0 && place_ + here <= length_;
          move(here);
          return fits;
        },
        [&](std::uint8_t byte, std::int64_t here) {
          const auto next = place_ == 0 ? 0 : length_ - place_;  // values until the next list
          const unsigned used = (1U << here) - 1;
          const unsigned expected = next < 8 ? ~(1U << next) : ~0U;
          move(here);
          return (byte & used) == (expected & used);
        });
  }
  bool at_end() const { return place_ == 0; }

 private:
  void move(std::int64_t count) { place_ = (place_ + count) % length_; }

  std::int64_t length_;
  std::int64_t place_ = 0;  // index of the next value in its list
};

struct PageParts {
  Bytes repetition;
  Bytes definition;
  Bytes values;
};

// Levels in data page V1 are preceded by their length in bytes.
std::optional<Bytes> take_counted(Bytes& bytes) {
  const auto prefix = take(bytes, 4);
  if (!prefix) return std::nullopt;
  std::uint32_t size = 0;
  std::memcpy(&size, prefix->data(), sizeof size);
  return take(bytes, size);
}

std::optional<PageParts> parts_of(const parquet::DataPage& page) {
  Bytes bytes(page.data(), static_cast<std::size_t>(page.size()));
  std::optional<Bytes> repetition;
  std::optional<Bytes> definition;
  if (page.type() == parquet::PageType::DATA_PAGE) {
    const auto& first = static_cast<const parquet::DataPageV1&>(page);
    if (first.repetition_level_encoding() != parquet::Encoding::RLE ||
        first.definition_level_encoding() != parquet::Encoding::RLE)
      return std::nullopt;
    repetition = take_counted(bytes);
    definition = take_counted(bytes);
  } else {
    const auto& second = static_cast<const parquet::DataPageV2&>(page);
    const auto sizes = {second.repetition_levels_byte_length(),
                        second.definition_levels_byte_length()};
    if (std::min(sizes) < 0) return std::nullopt;
    repetition = take(bytes, static_cast<std::size_t>(*sizes.begin()));
    definition = take(bytes, static_cast<std::size_t>(*(sizes.begin() + 1)));
  }
  if (!repetition || !definition) return std::nullopt;
  return PageParts{*repetition, *definition, bytes};
}

}  // namespace

bool read_equal_lists(parquet::PageReader& pages, const parquet::ColumnDescriptor& column,
                      std::int64_t length, std::span<float> values) {
  const auto highest = column.max_definition_level();
  if (length < 8 || highest < 1 || highest > 3) return false;
  ListWalk lists(length);
  while (const auto page = pages.NextPage()) {
    if (page->type() != parquet::PageType::DATA_PAGE &&
        page->type() != parquet::PageType::DATA_PAGE_V2)
      return false;
    const auto& data = static_cast<const parquet::DataPage&>(*page);
    const auto count = data.num_values();
    const auto encoding = data.encoding();
    if (encoding != parquet::Encoding::PLAIN && encoding != parquet::Encoding::BYTE_STREAM_SPLIT)
      return false;
    const auto parts = parts_of(data);
    if (!parts || count < 0 || static_cast<std::size_t>(count) > values.size() ||
        parts->values.size() != static_cast<std::size_t>(count) * sizeof(float) ||
        !all_defined(parts->definition, highest, count) || !lists.take(parts->repetition, count))
      return false;
    const auto decoder = parquet::MakeTypedDecoder<parquet::FloatType>(encoding, &column);
    decoder->SetData(count, parts->values.data(), static_cast<int>(parts->values.size()));
    if (decoder->Decode(values.data(), count) != count) return false;
    values = values.subspan(static_cast<std::size_t>(count));
  }
  return values.empty() && lists.at_end();
}

}  // namespace qkscope
