#include "capture/format/layout.h"

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

// Parses a decimal number without a sign.
std::optional<int> parse_digits(std::string_view text) {
  return text.starts_with('-') ? std::nullopt : parse_number<int>(text);
}

// Parses a number zero-padded to five digits, as in the folder names of parts.
std::optional<std::int64_t> parse_part_number(std::string_view text) {
  constexpr std::size_t kFewest = 5;
  constexpr std::size_t kMost = 18;  // number of digits that fits 64 bits
  if (text.size() < kFewest || text.size() > kMost) return std::nullopt;
  if (text.front() == '-' || (text.size() > kFewest && text.front() == '0')) return std::nullopt;
  return parse_number<std::int64_t>(text);
}

}  // namespace

std::string head_folder_name(const HeadId& id) {
  return fmt::format("l{:02}h{:02}{}", id.layer, id.head, static_cast<char>(id.kind));
}

std::optional<HeadId> parse_head_folder_name(std::string_view name) {
  const auto middle = name.find('h');
  const bool query = name.ends_with('q');
  if (!name.starts_with('l') || middle == name.npos || (!query && !name.ends_with('k'))) return {};
  const auto layer = parse_digits(name.substr(1, middle - 1));
  const auto head = parse_digits(name.substr(middle + 1, name.size() - middle - 2));
  if (!layer || !head) return {};
  return HeadId{*layer, *head, query ? HeadKind::query : HeadKind::key};
}

std::string head_file_path(const std::string& data_root, const HeadId& id) {
  return translate_exceptions(
      [&] { return data_root + "/" + head_folder_name(id) + "/" + layout::kHeadFile; });
}

bool is_capture_file(std::string_view path) {
  const auto slash = path.find('/');
  if (slash == std::string_view::npos)
    return path == layout::kCardFile || path == layout::kStateFile || path == layout::kExamplesFile;
  return parse_head_folder_name(path.substr(0, slash)) &&
         path.substr(slash + 1) == layout::kHeadFile;
}

std::string part_name(const Shard& shard) {
  return fmt::format("{:05}-of-{:05}", shard.index, shard.count);
}

std::optional<Shard> parse_part_name(const std::string& name) {
  const auto middle = name.find("-of-");
  if (middle == std::string::npos) return {};
  const auto index = parse_part_number(std::string_view(name).substr(0, middle));
  const auto count = parse_part_number(std::string_view(name).substr(middle + 4));
  if (!index || !count || *index >= *count) return {};
  return Shard{*index, *count};
}

std::string segment_name(std::size_t number) {
  return fmt::format("{:08}{}", number, layout::kSegmentSuffix);
}

}  // namespace qkscope
