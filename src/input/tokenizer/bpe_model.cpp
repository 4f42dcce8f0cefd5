#include <algorithm>
#include <functional>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "input/tokenizer/encoder.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

using unicode::kSpaceMarkUtf8;

constexpr std::size_t kLongWord = 64;  // bytes; longer words are divided into parts

std::size_t byte_pair_index(char last, char first) {
  return static_cast<std::size_t>(static_cast<unsigned char>(last)) << 8 |
         static_cast<unsigned char>(first);
}

constexpr std::size_t kShort = 40;  // symbols; up to here a linear search beats a heap
constexpr std::uint32_t kNone = MergeTable::kNone;

void merge_symbols_with_scan(const MergeTable& merges, std::vector<BpeSymbol>& symbols,
                             std::vector<std::uint32_t>& ranks) {
  ranks.resize(symbols.size() - 1);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    ranks[i] = merges.rank(symbols[i].id, symbols[i + 1].id);
  while (!ranks.empty()) {
    const auto best = std::ranges::min_element(ranks);
    if (*best == kNone) break;
    const auto symbol = symbols.begin() + (best - ranks.begin());
    *symbol = {merges.merged_id(*best), symbol->size + symbol[1].size};
    symbols.erase(symbol + 1);
    const auto next = ranks.erase(best);
    if (next != ranks.begin()) next[-1] = merges.rank(symbol[-1].id, symbol->id);
    if (next != ranks.end()) *next = merges.rank(symbol->id, symbol[1].id);
  }
}

// BPE merge loop that keeps pairs as (rank, position) in a heap with lazy deletion. ranks[i] is the
// current rank of the pair that starts at i; heap entries with another rank are stale and skipped.
void merge_symbols_with_heap(const MergeTable& merges, std::vector<BpeSymbol>& symbols,
                             MergeWorkspace& scratch) {
  auto& ranks = scratch.ranks;
  auto& next = scratch.next;
  auto& previous = scratch.previous;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  ranks.assign(count, kNone);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto update = [&](std::uint32_t at) {
    const std::uint32_t right = next[at];
    ranks[at] = right < count ? merges.rank(symbols[at].id, symbols[right].id) : kNone;
    if (ranks[at] == kNone) return;
    heap.push_back(std::uint64_t{ranks[at]} << 32 | at);
    std::ranges::push_heap(heap, std::greater<>());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    update(i);
  }
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    if (ranks[at] != static_cast<std::uint32_t>(top >> 32)) continue;
    const std::uint32_t right = next[at];
    symbols[at] = {merges.merged_id(ranks[at]), symbols[at].size + symbols[right].size};
    ranks[right] = kNone;
    next[at] = next[right];
    if (next[at] < count) previous[next[at]] = at;
    update(at);
    if (at > 0) update(previous[at]);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < count; at = next[at]) symbols[kept++] = symbols[at];
  symbols.resize(kept);
}

}  // namespace

BpeModel::BpeModel(BpeModelSpec file, bool bytes, const std::string& where)
    : file_(std::move(file)), bytes_(bytes) {
  if (file_.unknown) {
    unknown_id_ = file_.vocabulary.find(*file_.unknown);
    if (unknown_id_ < 0)
      reject("{}: the model's unk_token \"{}\" is not in its vocabulary", where, *file_.unknown);
  }
  merges_.reserve(file_.merges.size());
  for (const auto& [left, right, into] : file_.merges) merges_.add(left, right, into);
  collect_initial_symbol_ids();
  collect_mergeable_byte_pairs();
  file_.merges = {};
}

void BpeModel::collect_initial_symbol_ids() {
  bool all_fallbacks = file_.byte_fallback;
  for (int byte = 0; byte < 256; ++byte) {
    const auto at = static_cast<std::size_t>(byte);
    const char raw = static_cast<char>(byte);
    initial_[at] = -1;
    if (bytes_)
      initial_[at] = file_.vocabulary.find(to_byte_alphabet({&raw, 1}));
    else if (byte < 0x80)
      initial_[at] = file_.vocabulary.find({&raw, 1});
    fallback_[at] = file_.vocabulary.find(fmt::format("<0x{:02X}>", byte));
    all_fallbacks = all_fallbacks && fallback_[at] >= 0;
  }
  // A word can be encoded in parts only if unknown characters are not fused (fuse_unk) and no
  // continuing_subword_prefix distinguishes the first character.
  divisible_ = file_.continuing_prefix.empty() && (unknown_id_ < 0 || all_fallbacks);
}

std::uint32_t BpeModel::size_in_vocabulary_alphabet(std::string_view text) const {
  if (!bytes_) return static_cast<std::uint32_t>(text.size());
  std::uint32_t size = 0;
  for (const char byte : text) size += utf8_length_in_byte_alphabet(byte);
  return size;
}

// Collects the first and last byte of every token, then marks byte pairs that a merge can join.
void BpeModel::collect_mergeable_byte_pairs() {
  struct TokenEndBytes {
    bool in_words = false;  // false if the token is not spelled in the byte-level alphabet
    char first = 0, last = 0;
    bool begins_with_mark = false;
  };
  std::vector<TokenEndBytes> ends(static_cast<std::size_t>(file_.vocabulary.id_range_end()));
  std::string buffer;
  for (std::int32_t id = 0; id < file_.vocabulary.id_range_end(); ++id) {
    const auto token = file_.vocabulary.token_string(id);
    if (!token || token->empty()) continue;
    if (bytes_ && !decode_byte_alphabet(*token, buffer)) continue;
    const std::string_view text = bytes_ ? std::string_view(buffer) : *token;
    ends[static_cast<std::size_t>(id)] = {true, text.front(), text.back(),
                                          text.starts_with(kSpaceMarkUtf8)};
    if (file_.ignore_merges) whole_.add(text, id);
  }
  for (const auto& [left, right, into] : file_.merges) {
    const TokenEndBytes& before = ends[static_cast<std::size_t>(left)];
    const TokenEndBytes& after = ends[static_cast<std::size_t>(right)];
    if (!before.in_words || !after.in_words) continue;
    joins_.set(byte_pair_index(before.last, after.first));
    if (!bytes_ && after.begins_with_mark) {
      const std::string_view text = *file_.vocabulary.token_string(left);
      joins_mark_.insert(utf8::decode_last_character(text.data() + text.size()).code);
    }
  }
}

bool BpeModel::is_merge_boundary(const char* at) const {
  if (!joins_[byte_pair_index(at[-1], at[0])]) return bytes_ || !utf8::is_continuation_byte(*at);
  return !bytes_ && *at == kSpaceMarkUtf8[0] && at[1] == kSpaceMarkUtf8[1] &&
         at[2] == kSpaceMarkUtf8[2] && !joins_mark_.contains(utf8::decode_last_character(at).code);
}

bool BpeModel::never_merges_across(std::string_view left, std::string_view next) const {
  if (!divisible_ || file_.ignore_merges) return false;
  if (!joins_[byte_pair_index(left.back(), next.front())]) return true;
  return !bytes_ && next.starts_with(kSpaceMarkUtf8) &&
         !joins_mark_.contains(utf8::decode_last_character(left.data() + left.size()).code);
}

void BpeModel::add_initial_symbol(std::string_view character, bool first,
                                  std::vector<BpeSymbol>& symbols, BpeSymbol& pending) const {
  const std::uint32_t size = size_in_vocabulary_alphabet(character);
  std::int32_t id;
  std::string text;  // spelling of the character, if it differs from the character
  if (first || file_.continuing_prefix.empty()) {
    const auto lead = static_cast<unsigned char>(character.front());
    id = bytes_ || lead < 0x80 ? initial_[lead] : file_.vocabulary.find(character);
  } else {
    text =
        file_.continuing_prefix + (bytes_ ? to_byte_alphabet(character) : std::string(character));
    id = file_.vocabulary.find(text);
  }
  const auto settle = [&] {
    if (pending.size > 0) symbols.push_back(pending);
    pending = {unknown_id_, 0};
  };
  if (id >= 0) {
    settle();
    symbols.push_back({id, size});
    return;
  }
  if (file_.byte_fallback) {
    if (text.empty()) text = bytes_ ? to_byte_alphabet(character) : std::string(character);
    const auto fallback = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
    if (std::ranges::all_of(text, [&](char byte) { return fallback(byte) >= 0; })) {
      for (const char byte : text) symbols.push_back({fallback(byte), 1});
      return;
    }
  }
  if (unknown_id_ < 0) return;  // no unknown token: the character is dropped
  if (!file_.fuse_unknown) settle();
  pending.size += size;
}

void BpeModel::split_into_symbols(std::string_view word, std::vector<BpeSymbol>& symbols) const {
  symbols.clear();
  BpeSymbol pending{unknown_id_, 0};  // unknown characters not yet appended
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = bytes_ ? 1 : utf8::character_size(word[at]);
    add_initial_symbol(word.substr(at, size), at == 0, symbols, pending);
    at += size;
  }
  if (pending.size > 0) symbols.push_back(pending);
}

void BpeModel::encode_to_symbols(std::string_view word, EncodingWorkspace& work,
                                 std::vector<BpeSymbol>& symbols) const {
  if (const std::int32_t id = whole_.find(word); id >= 0) {
    symbols.assign(1, {id, size_in_vocabulary_alphabet(word)});
    return;
  }
  split_into_symbols(word, symbols);
  merge_symbols(merges_, symbols, work.merging);
}

// Splits the word at boundaries that no merge can cross, so that parts can be cached like words.
void BpeModel::encode_independent_parts(BpeWord word, EncodingWorkspace& work,
                                        std::vector<std::int32_t>& ids) const {
  const char* begin = word.text.data();
  const char* const end = begin + word.text.size();
  for (const char* at = begin + 1; at <= end; ++at) {
    if (at < end && !is_merge_boundary(at)) continue;
    const BpeWord part{{begin, static_cast<std::size_t>(at - begin)}, word.readable_end, true};
    encode(part, work, ids);
    begin = at;
  }
}

void BpeModel::encode_uncached(BpeWord word, EncodingWorkspace& work,
                               std::vector<std::int32_t>& ids) const {
  const std::int32_t whole = word.is_part ? -1 : whole_.find(word.text);
  if (whole >= 0) return ids.push_back(whole);
  if (!word.is_part && divisible_ && word.text.size() > kLongWord)
    return encode_independent_parts(word, work, ids);
  split_into_symbols(word.text, work.symbols);
  merge_symbols(merges_, work.symbols, work.merging);
  for (const BpeSymbol& symbol : work.symbols) ids.push_back(symbol.id);
}

void BpeModel::encode(BpeWord word, EncodingWorkspace& work, std::vector<std::int32_t>& ids) const {
  if (word.text.size() > WordCache::kMaxBytes) return encode_uncached(word, work, ids);
  const WordCache::WordKey key(word.text, word.readable_end, word.is_part);
  WordCache::CachedWord& entry = work.cache.entry_for_key(key);
  if (entry.matches(key)) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const std::size_t first = ids.size();
  encode_uncached(word, work, ids);
  entry.store(key, {ids.data() + first, ids.size() - first});
}

std::size_t Vocabulary::find_slot(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at] != 0) {
    const VocabularyEntry& entry = entries_[slots_[at] - 1];
    if (entry.hash == hash && entry_text(entry) == token) break;
    at = (at + 1) & mask;
  }
  return at;
}

void Vocabulary::grow_hash_table() {
  slots_.assign(hash_table_size(2 * entries_.size() + 8), 0);
  std::uint32_t number = 0;  // 1 + index
  for (const auto& entry : entries_) slots_[find_slot(entry_text(entry), entry.hash)] = ++number;
}

void Vocabulary::add(std::string_view token, std::int32_t id) {
  if (2 * entries_.size() >= slots_.size()) grow_hash_table();
  const auto hash = static_cast<std::uint32_t>(checksum_of(token));
  const std::size_t at = find_slot(token, hash);
  if (slots_[at] == 0) {
    entries_.push_back({static_cast<std::uint32_t>(text_.size()),
                        static_cast<std::uint32_t>(token.size()), id, hash});
    text_.append(token);
    slots_[at] = static_cast<std::uint32_t>(entries_.size());
  }
  const std::uint32_t entry = slots_[at] - 1;
  entries_[entry].id = id;
  if (id >= id_range_end()) by_id_.resize(static_cast<std::size_t>(id) + 1, -1);
  by_id_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(entry);
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const std::uint32_t entry =
      slots_[find_slot(token, static_cast<std::uint32_t>(checksum_of(token)))];
  return entry == 0 ? -1 : entries_[entry - 1].id;
}

std::optional<std::string_view> Vocabulary::token_string(std::int32_t id) const {
  if (id < 0 || id >= id_range_end()) return std::nullopt;
  const std::int32_t entry = by_id_[static_cast<std::size_t>(id)];
  if (entry < 0) return std::nullopt;
  return entry_text(entries_[static_cast<std::size_t>(entry)]);
}

void merge_symbols(const MergeTable& merges, std::vector<BpeSymbol>& symbols,
                   MergeWorkspace& scratch) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) return merge_symbols_with_scan(merges, symbols, scratch.ranks);
  merge_symbols_with_heap(merges, symbols, scratch);
}

}  // namespace qkscope
