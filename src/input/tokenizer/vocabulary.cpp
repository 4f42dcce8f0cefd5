#include "input/tokenizer/vocabulary.h"

namespace qkscope {

std::size_t Vocabulary::slot(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at] != 0) {
    const Entry& entry = entries_[slots_[at] - 1];
    if (entry.hash == hash && text(entry) == token) break;
    at = (at + 1) & mask;
  }
  return at;
}

void Vocabulary::grow() {
  slots_.assign(table_size(2 * entries_.size() + 8), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t at = entries_[i].hash & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

void Vocabulary::add(std::string_view token, std::int32_t id) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const auto hash = static_cast<std::uint32_t>(hash_string(token));
  const std::size_t at = slot(token, hash);
  if (slots_[at] == 0) {
    entries_.push_back({static_cast<std::uint32_t>(text_.size()),
                        static_cast<std::uint32_t>(token.size()), id, hash});
    text_.append(token);
    slots_[at] = static_cast<std::uint32_t>(entries_.size());
  }
  const std::uint32_t entry = slots_[at] - 1;
  entries_[entry].id = id;
  if (id >= end_id()) by_id_.resize(static_cast<std::size_t>(id) + 1, -1);
  by_id_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(entry);
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const std::uint32_t entry = slots_[slot(token, static_cast<std::uint32_t>(hash_string(token)))];
  return entry == 0 ? -1 : entries_[entry - 1].id;
}

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  if (id < 0 || id >= end_id()) return std::nullopt;
  const std::int32_t entry = by_id_[static_cast<std::size_t>(id)];
  if (entry < 0) return std::nullopt;
  return text(entries_[static_cast<std::size_t>(entry)]);
}

}  // namespace qkscope
