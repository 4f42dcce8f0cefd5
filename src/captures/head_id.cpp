#include "captures/head_id.h"

#include <charconv>

#include <fmt/format.h>

namespace qkscope {
namespace {

// Digits at the front of `text`, removed from it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string folder_name(const HeadId& id) {
  return fmt::format("l{:02}h{:02}{}", id.layer, id.head, static_cast<char>(id.kind));
}

std::optional<HeadId> parse_folder_name(std::string_view name) {
  HeadId id;
  if (!take(name, 'l')) return std::nullopt;
  const auto layer = take_number(name);
  if (!layer || !take(name, 'h')) return std::nullopt;
  const auto head = take_number(name);
  if (!head || (name != "q" && name != "k")) return std::nullopt;
  id.layer = *layer;
  id.head = *head;
  id.kind = name == "q" ? HeadKind::query : HeadKind::key;
  return id;
}

std::string head_file_path(const std::string& data_root, const HeadId& id) {
  return data_root + "/" + folder_name(id) + "/data.parquet";
}

}  // namespace qkscope
