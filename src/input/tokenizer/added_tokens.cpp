#include "input/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/core/utf8.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

bool ends_with(std::string_view text, std::uint16_t flags) {
  return !text.empty() && unicode::has(utf8::decode_last(text.data() + text.size()).code, flags);
}

bool starts_with(std::string_view text, std::uint16_t flags) {
  return !text.empty() && unicode::has(utf8::decode(text.data()).code, flags);
}

}  // namespace

void TokenFinder::add(std::string_view text, std::int32_t id) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    const auto [child, added] = children_.emplace(edge, ids_.size());
    if (added) ids_.push_back(-1);
    node = child->second;
  }
  ids_[node] = id;
  longest_ = std::max(longest_, text.size());
  if (starts_.find(text.front()) == std::string::npos) starts_.push_back(text.front());
}

std::optional<TokenFinder::Found> TokenFinder::next(std::string_view text, std::size_t from) const {
  if (empty()) return std::nullopt;
  const auto next_start = [&](std::size_t at) {
    return starts_.size() == 1 ? text.find(starts_.front(), at) : text.find_first_of(starts_, at);
  };
  for (; (from = next_start(from)) != std::string_view::npos; ++from) {
    std::optional<Found> longest;
    std::uint32_t node = 0;
    for (std::size_t at = from; at < text.size(); ++at) {
      const auto child =
          children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (ids_[node] >= 0) {
        const Span range{static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(at + 1)};
        longest = Found{range, ids_[node]};
      }
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

bool TokenFinder::touches(std::string_view text, std::size_t at) const {
  const std::size_t begin = at - std::min(at, longest_);
  const std::string_view window = text.substr(begin, 2 * longest_);
  for (std::size_t from = 0; from <= at - begin; ++from) {
    const auto found = next(window, from);
    if (!found || begin + found->range.begin > at) return false;
    if (begin + found->range.end >= at) return true;
    from = found->range.begin;
  }
  return false;
}

void AddedTokens::add(const AddedToken& token, const Vocabulary& vocabulary,
                      const std::optional<Normalizer>& normalizer) {
  if (token.content.empty()) return;
  std::int32_t id = find(token.content);
  if (id < 0) id = vocabulary.find(token.content);
  if (id < 0) {
    const auto size = static_cast<std::int32_t>(vocabulary.size());
    id = by_id_.empty() ? size : std::max(size, by_id_.rbegin()->first + 1);
  }
  std::string shown = token.content;
  if (token.normalized && normalizer) {
    AlignedText text(token.content, 0, false);
    normalizer->apply(text, {});
    shown = text.text();
  }
  ids_[token.content] = id;
  if (token.special) special_.insert(token.content);
  (token.normalized ? normalized_ : raw_).add(shown, id);
  by_id_[id] = {token, std::move(shown)};
}

void AddedTokens::split(std::string_view text, bool normalized,
                        std::vector<Section>& sections) const {
  const TokenFinder& finder = normalized ? normalized_ : raw_;
  std::uint32_t done = 0;
  for (std::size_t from = 0; const auto found = finder.next(text, from);) {
    auto [begin, end] = found->range;
    from = end;
    const AddedToken& token = by_id_.at(found->id).token;
    if (token.single_word && (ends_with(text.substr(0, begin), unicode::kWord) ||
                              starts_with(text.substr(end), unicode::kWord))) {
      continue;
    }
    if (token.lstrip) {
      while (begin > done && ends_with(text.substr(0, begin), unicode::kSpace))
        begin -= utf8::decode_last(text.data() + begin).size;
    }
    if (token.rstrip) {
      while (starts_with(text.substr(end), unicode::kSpace)) end += utf8::length(text[end]);
    }
    if (done < begin) sections.push_back({{done, begin}, -1});
    sections.push_back({{begin, end}, found->id});
    done = end;
  }
  if (done < text.size()) sections.push_back({{done, static_cast<std::uint32_t>(text.size())}, -1});
}

// The text is split into parts that are searched for normalized tokens one by one; a split is
// allowed only where no normalized token can span it.
bool AddedTokens::allows_cuts() const {
  return std::none_of(by_id_.begin(), by_id_.end(), [](const auto& entry) {
    const auto& [token, shown] = entry.second;
    return token.normalized &&
           (token.rstrip || token.single_word || shown.find(' ') != std::string::npos ||
            shown.find(unicode::kSpaceMarkUtf8) != std::string::npos);
  });
}

std::optional<std::string_view> AddedTokens::token(std::int32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second.shown;
}

std::int32_t AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? -1 : found->second;
}

std::size_t AddedTokens::count_outside(const Vocabulary& vocabulary) const {
  return static_cast<std::size_t>(std::count_if(ids_.begin(), ids_.end(), [&](const auto& entry) {
    return vocabulary.find(entry.first) < 0;
  }));
}

}  // namespace qkscope
